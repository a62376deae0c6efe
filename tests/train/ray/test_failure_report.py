"""Which of the workers' and Ray's reports the user sees: the cause, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from llmops_kernel.metrics.events import FailureEvent
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
def config(make_config: Callable[..., Any]) -> Any:
    return make_config(training={"max_failures": 0})


@pytest.mark.parametrize("reported", [[], [PEER]])
def test_a_killed_worker_is_the_cause_and_its_peers_are_not_shown(
    config: Any, reported: list[FailureEvent]
) -> None:
    (failure,) = choose(reported, KILLED, config)
    named = ("rank 1", "signal 9", "out of memory", "training.max_failures=0")
    assert missing(failure.message, *named) == []
    assert failure.ranks == (1,)
    assert "training.micro_batch_size=1" in failure.remedy
    assert "training.max_failures=1" in failure.remedy
    assert failure.traceback == ""


def test_an_error_in_the_code_comes_before_a_killed_worker(config: Any) -> None:
    assert choose([PEER, BAD_ROW], KILLED, config) == [BAD_ROW]


def test_lost_peers_alone_are_shown(config: Any) -> None:
    assert choose([PEER], WorkerGroupError("text", {0: RuntimeError("gloo")}), config) == [PEER]


def test_what_ray_train_raised_itself_is_shown_in_one_line(config: Any) -> None:
    (failure,) = choose([], RuntimeError("first line\nThe controller gave up"), config)
    assert "\n" not in failure.message
    assert "The controller gave up" in failure.message
    assert "llmops retry" in failure.remedy
