"""The compilation in advance has the lowest priority, and a session of its own."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import psutil

from llmops_kernel.warm.keeper import PREPARE, PREPARE_CODE
from tests.warm.conftest import Node, until

STUB = """
import sys, time
if "--preload" not in sys.orig_argv and "llmops_kernel.warm.server" not in sys.orig_argv:
    time.sleep(60)
"""


def test_what_it_compiles_with_is_where_it_looks() -> None:
    found = find_spec(PREPARE)
    assert found is not None
    assert Path(str(found.origin)) == PREPARE_CODE


def test_the_compilation_disturbs_nobody(own_node: Node, tmp_path: Path) -> None:
    (tmp_path / "deepspeed.py").write_text(STUB)
    own_node.start("deepspeed", path=str(tmp_path))
    own_node.ready()
    assert own_node.keeper is not None
    keeper = psutil.Process(own_node.keeper.pid)

    def compiling() -> psutil.Process | None:
        found = [one for one in keeper.children() if PREPARE in one.cmdline()]
        return found[0] if found else None

    process = until(compiling)
    try:
        until(lambda: process.nice() == 19)
        assert os.getsid(process.pid) == process.pid != os.getsid(keeper.pid)
    finally:
        process.kill()
