"""The process that waits with its imports done: who gets it, what it answers, when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmops_kernel.services.data.preview import job_of, preview
from llmops_kernel.services.data.spare import Spare

CONFIG = "model: tiny-llama\ndata: {train: rows.jsonl, max_length: 24}\n"
ROWS = '{"prompt": "say", "completion": "a b c"}\n{"prompt": "1", "completion": "two, three"}\n'
HOOKS = """\
import importlib.util
import os
import pathlib
import sys

assert "transformers" not in sys.modules, "hooks get Transformers without torch"
assert importlib.util.find_spec("torch"), "hooks find no torch"
pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))

def format_example(row):
    return row
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "x.train.yaml").write_text(CONFIG)
    return tmp_path / "x.train.yaml"


@pytest.fixture
def spare() -> Iterator[Spare]:
    one = Spare()
    yield one
    one.close()


def answer(config: Path, **more: Any) -> dict[str, Any]:
    found = preview(job_of(config, overrides=["hooks.file=hooks.py"]), **more)
    return found.model_dump(exclude={"took_s"})


def is_over(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_process_that_waits_answers_as_a_new_one_and_hooks_see_no_difference(
    config: Path, spare: Spare
) -> None:
    spare.fill()
    waiting = spare.pid
    assert waiting is not None
    ready = answer(config, start=spare.take)
    assert (config.parent / "pid").read_text() == str(waiting)
    assert is_over(waiting)
    assert spare.pid is None
    assert answer(config) == ready
    assert ready["train"]["total_rows"] == 2


def test_one_process_waits_however_often_it_is_filled(spare: Spare) -> None:
    spare.fill()
    first = spare.pid
    spare.fill()
    assert spare.pid == first


def test_a_process_that_has_ended_is_given_to_nobody(spare: Spare) -> None:
    spare.fill()
    assert spare.pid is not None
    psutil.Process(spare.pid).kill()
    while spare.pid is not None:
        time.sleep(0.01)
    child = spare.take()
    assert child.is_alive
    child.close()


def test_it_ends_when_nobody_needs_it_and_when_it_is_closed(spare: Spare) -> None:
    short = Spare(idle_s=0.2)
    short.fill()
    while short.pid is not None:
        time.sleep(0.02)
    spare.fill()
    pid = spare.pid
    assert pid is not None
    spare.close()
    assert is_over(pid)
    spare.fill()
    assert spare.pid is None
