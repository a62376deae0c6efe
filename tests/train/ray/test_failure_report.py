"""Which of the workers' and Ray's reports the user sees: the cause, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.ray.failures import choose

LOST = WorkerHealthCheckFailedError(
    "A worker health check failed.",
    failure=RuntimeError("Worker unexpectedly exits with a connection error code 2. End of file."),
)
KILLED = WorkerGroupError("text", {1: LOST})


def report(rank: int, message: str) -> FailureEvent:
    return FailureEvent(error="RuntimeError", message=message, ranks=(rank,))


PEER = report(0, "RuntimeError: [gloo] Connection closed by peer")
BAD_ROW = report(1, "KeyError: 'name'")


@pytest.fixture
def spec(make_config: Callable[..., Any]) -> RunSpec:
    config = make_config(training={"max_failures": 0}).model_dump(mode="json")
    return RunSpec(run_id="r1", attempt=1, config=config, run_root="/none", submitted_s=0.0)


@pytest.mark.parametrize("reported", [[], [PEER]])
def test_a_killed_worker_is_the_cause_and_its_peers_are_not_shown(
    spec: RunSpec, reported: list[FailureEvent]
) -> None:
    (failure,) = choose(reported, KILLED, spec)
    assert failure.message == (
        "Worker rank 1 was killed, probably by signal 9 because its node ran out of memory. No"
        " restart is left (training.max_failures=0)."
    )
    assert failure.ranks == (1,)
    assert "training.micro_batch_size=1" in failure.remedy
    assert "training.max_failures=1" in failure.remedy
    assert failure.traceback == ""


def test_an_error_in_the_code_comes_before_a_killed_worker(spec: RunSpec) -> None:
    assert choose([PEER, BAD_ROW], KILLED, spec) == [BAD_ROW]


def test_lost_peers_alone_are_shown(spec: RunSpec) -> None:
    assert choose([PEER], WorkerGroupError("text", {0: RuntimeError("gloo")}), spec) == [PEER]


def test_what_ray_train_raised_itself_is_shown_in_one_line(spec: RunSpec) -> None:
    (failure,) = choose([], RuntimeError("first line\nThe controller gave up"), spec)
    assert failure.message == "Ray Train ended the run: The controller gave up."
    assert "llmops retry" in failure.remedy
