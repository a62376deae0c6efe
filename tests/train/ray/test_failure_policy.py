"""What is tried again: a lost worker is, an error in the code is not."""

from __future__ import annotations

from typing import Any

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from llmops_kernel.errors import HookError
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.train.ray.failures import (
    cause,
    describe_shortage,
    is_code_failure,
    lost_ranks,
    out_of_memory,
)

LOST = WorkerHealthCheckFailedError(
    "A worker health check failed.", failure=RuntimeError("The actor died: exit code 137")
)
PEER = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
HOOK = HookError("The hook format_example raised KeyError on row 3", remedy="see hooks.py:6")


@pytest.mark.parametrize(
    ("failures", "is_code"),
    [
        ({0: HOOK}, True),
        ({0: PEER, 1: HOOK}, True),
        ({0: PEER}, False),
        ({0: PEER, 1: LOST}, False),
        ({1: LOST}, False),
        ({0: ValueError("bad"), 1: LOST}, False),
        ({}, False),
    ],
)
def test_only_errors_in_the_code_are_not_tried_again(
    failures: dict[int, Any], is_code: bool
) -> None:
    assert is_code_failure(WorkerGroupError("text", failures)) is is_code


def test_the_cause_names_the_lost_rank_and_not_its_peers() -> None:
    error = WorkerGroupError("text", {0: PEER, 1: LOST})
    assert lost_ranks(error) == (1,)
    assert cause(error) == (
        "worker rank 1 was killed by signal 9 (SIGKILL), probably because its node ran out of"
        " memory"
    )


def test_several_lost_ranks_are_named_once() -> None:
    text = cause(WorkerGroupError("text", {0: LOST, 2: LOST, 1: PEER}))
    assert text.startswith("worker ranks 0, 2 are gone; rank 0 was killed by signal 9")


def test_workers_that_only_lost_a_peer_are_all_named() -> None:
    error = WorkerGroupError("text", {1: PEER, 0: PEER})
    assert lost_ranks(error) == ()
    assert cause(error) == "worker ranks 0, 1 lost the connection to the other workers"


MONITOR = WorkerHealthCheckFailedError(
    "A worker health check failed.",
    failure=RuntimeError(
        "Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1)"
        " was 31.2GB / 32.0GB (0.975000), which exceeds the memory usage threshold of 0.95."
    ),
)


def event(rank: int, text: str, **more: Any) -> FailureEvent:
    return FailureEvent(error="RuntimeError", message=text, ranks=(rank,), **more)


NO_MEMORY = event(1, "Out of memory: nccl", out_of_memory=True, step=7)
NO_MEMORY_TOO = NO_MEMORY.model_copy(update={"ranks": (0,), "phase": "first_step"})
PEER_LOST = event(0, "gloo: connection closed by peer", step=4, phase="evaluate")


@pytest.mark.parametrize(
    ("failures", "events", "kernel", "expected"),
    [
        ({1: PEER}, [NO_MEMORY, PEER_LOST], False, "out of memory at step 7 of worker rank 1"),
        (
            {0: PEER, 1: PEER},
            [NO_MEMORY_TOO, NO_MEMORY],
            False,
            "out of memory at step 7 of worker ranks 0, 1",
        ),
        ({1: LOST}, [], True, "out of memory of worker rank 1"),
        (
            {1: LOST},
            [PEER_LOST],
            True,
            "out of memory of worker rank 1 in phase evaluate after step 4",
        ),
        ({0: MONITOR}, [], False, "out of memory of worker rank 0"),
        # Killed by signal 9, and the kernel has not killed for memory.
        ({1: LOST}, [PEER_LOST], False, None),
        ({0: HOOK}, [event(0, "KeyError")], True, None),
        ({0: HOOK, 1: PEER}, [event(0, "KeyError"), NO_MEMORY], True, None),
        ({0: PEER}, [PEER_LOST], True, None),
    ],
)
def test_which_failures_are_of_memory(
    failures: dict[int, Any], events: list[FailureEvent], kernel: bool, expected: str | None
) -> None:
    error = WorkerGroupError("text", failures)
    failure = out_of_memory(error, events, is_kernel=lambda ranks: kernel)
    assert (None if failure is None else describe_shortage(failure)) == expected
