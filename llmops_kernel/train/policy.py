"""Which worker failures Ray Train retries. Runs in Ray Train's controller."""

from __future__ import annotations

from typing import Any

from ray.train import FailureConfig, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)
from ray.train.v2._internal.execution.failure_handling import (
    DefaultFailurePolicy,
    FailureDecision,
)

from llmops_kernel.metrics.events import RestartEvent
from llmops_kernel.runs.spec import RunSpec
from llmops_kernel.train.failures import is_peer_loss
from llmops_kernel.train.ray_context import newest_step, open_journal

_LOST = (WorkerHealthCheckFailedError, WorkerHealthCheckTimeoutError)
"""What Ray Train puts in the place of a worker's own exception when the process is gone."""


class RunFailurePolicy(DefaultFailurePolicy):
    """Restarts after a lost worker; an error in the code would only come again, so it is raised.

    Ray's default retries both, which makes the user wait for the same traceback twice.
    """

    def __init__(self, failure_config: FailureConfig, spec: RunSpec) -> None:
        super().__init__(failure_config)
        self._spec = spec

    def make_decision(self, training_failed_error: Any) -> FailureDecision:
        if is_code_failure(training_failed_error):
            return FailureDecision.RAISE
        decision = super().make_decision(training_failed_error)
        if decision is FailureDecision.RETRY:
            self._journal_restart(training_failed_error)
        return decision

    def _journal_restart(self, error: Any) -> None:
        writer = open_journal(self._spec, "controller")
        writer.emit(
            RestartEvent(
                from_step=newest_step(self._spec),
                cause=cause(error),
                failures_left=self.failure_config.max_failures - self._worker_group_failures,
            )
        )
        writer.close()


def is_code_failure(error: Any) -> bool:
    """True when every failed worker raised, and one of them for more than a lost peer."""
    if not isinstance(error, WorkerGroupError) or not error.worker_failures:
        return False
    failures = list(error.worker_failures.values())
    if any(isinstance(one, _LOST) for one in failures):
        return False
    return not all(is_peer_loss(f"{type(one).__name__} {one}") for one in failures)


def cause(error: Any) -> str:
    """One line: which ranks, and what happened to them."""
    failures = getattr(error, "worker_failures", None)
    if not failures:
        return str(error).strip().splitlines()[-1][:300]
    dead = {rank: one for rank, one in failures.items() if isinstance(one, _LOST)}
    ranks, first = (dead or failures), next(iter((dead or failures).values()))
    names = ", ".join(str(rank) for rank in sorted(ranks))
    kind = "died" if dead else "lost its peers"
    return f"worker rank {names} {kind}: {_reason(first)}"


def _reason(error: Exception) -> str:
    """Ray's sentence on the death, without its advice and its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "exit" in line.lower() or "died" in line.lower()]
    return (telling or lines or ["no message"])[-1][:300]
