"""What libraries read of the environment while a fork server imports them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from llmops_kernel.warm.env_reads import Recording
from tests.warm.conftest import Node

LIBRARY = """
import os
DEFAULT = os.environ.get("GOT", "none")
ASKED = "ASKED_FOR" in os.environ
PUT = os.environ.setdefault("PUT_HERE", "by the library")
"""
ITERATING = """
import os
FOUND = {name: value for name, value in os.environ.items() if name.startswith("CONF_")}
"""
SHOW = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
print(json.dumps([getattr(module, name) for name in sys.argv[2:]]))
"""


def shown(done: subprocess.CompletedProcess[bytes]) -> object:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def both(node: Node, library: str, names: list[str], **env: str) -> object:
    warm, plain = (
        shown(node.run("-c", SHOW, library, *names, env=node.env(**env), warm=is_warm))
        for is_warm in (True, False)
    )
    assert warm == plain
    return warm


def test_a_fork_has_what_a_library_makes_of_its_own_variables(
    own_node: Node, tmp_path: Path
) -> None:
    (tmp_path / "reader.py").write_text(LIBRARY)
    path = str(tmp_path)
    own_node.start("reader", path=path)
    own_node.ready()
    for env, expected in (
        ({"GOT": "this"}, ["this", False]),
        ({"ASKED_FOR": ""}, ["none", True]),
        ({"UNRELATED": "x"}, ["none", False]),
    ):
        assert both(own_node, "reader", ["DEFAULT", "ASKED"], PYTHONPATH=path, **env) == expected
    why = "environment set for this job is read when libraries load"
    assert own_node.reasons() == [f"{why}: GOT", f"{why}: ASKED_FOR"]


def test_a_library_that_looks_at_all_variables_has_those_of_the_job(
    own_node: Node, tmp_path: Path
) -> None:
    (tmp_path / "iterating.py").write_text(ITERATING)
    path = str(tmp_path)
    own_node.start("iterating", path=path)
    own_node.ready()
    found = both(own_node, "iterating", ["FOUND"], PYTHONPATH=path, CONF_A="1")
    assert found == [{"CONF_A": "1"}]
    assert both(own_node, "iterating", ["FOUND"], PYTHONPATH=path, HF_TOKEN="t") == [{}]
    assert len(own_node.reasons()) == 1


def test_fsspec_and_the_hub_have_the_jobs_settings(own_node: Node, tmp_path: Path) -> None:
    own_node.start("fsspec.config", "huggingface_hub.constants")
    own_node.ready()
    found = both(own_node, "fsspec.config", ["conf"], FSSPEC_S3_KEY="k")
    assert found == [{"s3": {"key": "k"}}]
    hub = "huggingface_hub.constants"
    assert both(own_node, hub, ["HF_TOKEN_PATH"], HF_TOKEN_PATH="/t") == ["/t"]
    assert len(own_node.reasons()) == 2
    assert own_node.reported(env=own_node.env(HF_TOKEN="t")) == "warm"


def test_the_environment_is_as_before_after_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFORE", "1")
    monkeypatch.delenv("INSIDE", raising=False)
    data = os.environ._data  # type: ignore[attr-defined]
    with Recording() as recording:
        monkeypatch.setenv("INSIDE", "2")
        monkeypatch.delenv("BEFORE")
        os.environ.get("LOOKED_UP")
        os.environ.copy()
        [value for _, value in os.environ.items()]
    assert os.environ._data is data  # type: ignore[attr-defined]
    assert (os.environ.get("INSIDE"), os.environ.get("BEFORE")) == ("2", None)
    assert os.environb[b"INSIDE"] == b"2"
    reads = recording.reads()
    assert "LOOKED_UP" in reads.names
    assert "HOME" not in reads.names
    assert reads.strangers == (__name__,)
