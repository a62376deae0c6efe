"""A failure is told once, in the user's terms, with the user's file and line."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import HookError
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.train.failures import describe, group
from llmops_kernel.train.hooks import call, load_hooks

HOOKS = """
def format_example(row):
    return shorten(row)

def shorten(row):
    return row["name"][:3]
"""


def test_a_hooks_failure_names_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "my_hooks.py").write_text(HOOKS)
    hooks = load_hooks(tmp_path / "my_hooks.py")
    assert hooks.format_example is not None
    with pytest.raises(HookError) as caught:
        call(hooks.format_example, {"title": "x"}, where="row 7")
    failure = describe(caught.value, rank=1, workspace=tmp_path)
    assert (failure.file, failure.line, failure.error) == ("my_hooks.py", 6, "KeyError")
    assert "row 7" in failure.message
    assert "my_hooks.py:6" in failure.remedy
    assert 'return row["name"][:3]' in failure.traceback


def test_a_syntax_error_in_the_hooks_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def format_example(row):\n    return (\n")
    with pytest.raises(HookError) as caught:
        load_hooks(tmp_path / "bad.py")
    failure = describe(caught.value, rank=0, workspace=tmp_path)
    assert (failure.file, failure.line) == ("bad.py", 2)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_out_of_memory_offers_three_settings(
    tmp_path: Path, make_config: Callable[..., Any], error: Exception
) -> None:
    config = make_config(method="full", training={"micro_batch_size": 4, "global_batch_size": 8})
    failure = describe(error, rank=0, workspace=tmp_path, config=config)
    assert failure.message.startswith("Out of memory")
    # A retry has the same config, and would run out of memory again.
    assert failure.remedy.startswith("`llmops resubmit RUN` with one of: ")
    assert "micro_batch_size=2" in failure.remedy
    assert failure.remedy.count(";") == 2


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/some/file")
    failure = describe(error, rank=0, workspace=tmp_path)
    assert "disk is full" in failure.message
    assert "LLMOPS_HOME" in failure.remedy


def event(rank: int, message: str) -> FailureEvent:
    return FailureEvent(error="ValueError", message=message, ranks=(rank,))


def test_ranks_that_failed_alike_are_reported_once() -> None:
    grouped = group([event(0, "bad row"), event(2, "bad row"), event(1, "bad row")])
    assert [failure.ranks for failure in grouped] == [(0, 1, 2)]


def test_the_symptom_on_other_ranks_does_not_hide_the_cause() -> None:
    grouped = group([event(0, "gloo: Connection closed by peer"), event(1, "bad row")])
    assert [failure.message for failure in grouped] == ["bad row"]


def test_symptoms_alone_are_still_reported() -> None:
    assert len(group([event(0, "NCCL error"), event(1, "NCCL error")])) == 1
