"""The failure events of an attempt, from what the workers stored and what Ray Train raised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.errors import LLMOpsError, RunError
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.failures import describe, group, is_peer_loss, memory_remedy
from llmops_kernel.train.ray.failure_policy import cause, lost_ranks


def failures(error: BaseException, spec: RunSpec) -> list[FailureEvent]:
    """Return each distinct failure once, the cause first.

    A lost worker breaks the collectives of the others: what those raised is only a symptom.
    """
    if isinstance(error, LLMOpsError):
        return [_own(error)]
    prefix = kv.key(spec.run_id, spec.attempt, "failure/")
    reported = [FailureEvent.model_validate(value) for value in kv.values(prefix)]
    return choose(reported, error, spec)


def choose(reported: list[FailureEvent], error: BaseException, spec: RunSpec) -> list[FailureEvent]:
    """Return what the workers reported, or the death of a worker where that explains it."""
    raised = [one for one in reported if not is_peer_loss(one.error + one.message)]
    if raised:
        return group(raised)
    if ranks := lost_ranks(error):
        return [lost_worker(error, ranks, spec)]
    if reported:
        return group(reported)
    return [
        _own(
            RunError(
                f"Ray Train ended the run: {cause(error)}.",
                remedy="see `llmops logs` and the Ray Dashboard, then `llmops retry`",
            )
        )
    ]


def lost_worker(error: Any, ranks: tuple[int, ...], spec: RunSpec) -> FailureEvent:
    """Return the failure for workers whose processes are gone; no restart is left."""
    config = TrainingConfig.model_validate(spec.config)
    what, allowed = cause(error), config.training.max_failures
    return FailureEvent(
        error="WorkerDied",
        message=f"{what[0].upper()}{what[1:]}. No restart is left"
        f" (training.max_failures={allowed}).",
        remedy=f"`llmops retry` resumes from the last checkpoint with the same config; if memory"
        f" ran"
        f" out, {memory_remedy(config)}; training.max_failures={allowed + 1} allows one more"
        f" restart",
        ranks=ranks,
    )


def _own(error: LLMOpsError) -> FailureEvent:
    """Return a failure of the driver itself, which has no rank."""
    failure = describe(error, rank=0, workspace=Path.cwd())
    return failure.model_copy(update={"ranks": ()})
