"""Which of the workers' and Ray's reports the user sees: the cause, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.ray.failures import choose
from tests.messages import missing

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
    named = ("rank 1", "signal 9", "out of memory", "training.max_failures=0")
    assert missing(failure.message, *named) == []
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
    assert "\n" not in failure.message
    assert "The controller gave up" in failure.message
    assert "llmops retry" in failure.remedy
