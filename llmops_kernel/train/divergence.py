"""The reaction of a run to a loss or gradient that is NaN or infinite (`training.on_nan`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DivergedError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.train.context import WorkerContext

MAX_SKIPPED_IN_A_ROW = 10
"""Once the weights themselves are broken, skipping steps does not repair them."""


class DivergenceGuard:
    """Checks each step and evaluation; raises DivergedError where the run should end.

    Call it on every worker with the same numbers (the mean loss, the global gradient norm, the
    loss on all held-out rows): all workers then leave at the same step, without a collective.
    """

    def __init__(self, context: WorkerContext, config: TrainingConfig) -> None:
        self._context = context
        self._config = config
        self._policy = config.training.on_nan
        self._first_step: int | None = None
        self._broken = ""
        """Value of the last step or evaluation that is not finite; empty when all are."""
        self._skipped_in_a_row = 0
        self.num_not_finite = 0
        """Steps so far whose loss or gradient norm was not finite."""

    def check_step(self, step: int, *, loss: float, grad_norm: float | None) -> None:
        """Raise DivergedError if the step is not finite and the run should not continue."""
        self._broken = _broken_step(loss, grad_norm)
        if not self._broken:
            self._skipped_in_a_row = 0
            return
        self.num_not_finite += 1
        self._skipped_in_a_row += 1
        if self._policy == "stop":
            raise self._error(f"{self._broken} at step {step}.")
        if self._policy == "skip" and self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise self._error(
                f"{self._broken} at step {step}; {MAX_SKIPPED_IN_A_ROW} steps in a row were"
                " skipped."
            )
        self._warn_once(step)

    def check_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Raise DivergedError if `eval_loss` is not finite and the run should stop."""
        loss = metrics.get("eval_loss")
        if loss is None or math.isfinite(loss):
            return
        self._broken = f"The evaluation loss is {loss}"
        if self._policy == "stop":
            raise self._error(f"{self._broken} after step {step}.")
        self._warn_once(step)

    def check_end(self, step: int) -> None:
        """Raise DivergedError if the last step or the last evaluation is not finite."""
        if self._broken:
            since = f" (first seen at step {self._first_step})"
            raise self._error(f"{self._broken} at the last step, {step}{since}.")
        if self.num_not_finite:
            done = "were skipped" if self._policy == "skip" else "were not finite"
            self._context.emit(
                WarningEvent(
                    message=f"{self.num_not_finite} of {step} steps {done}: their loss or gradient"
                    " was NaN or infinite.",
                    remedy=f"compare the evaluation with that of another run; {self._advice()}",
                )
            )

    def _warn_once(self, step: int) -> None:
        if self._first_step is not None:
            return
        self._first_step = step
        next_move = {
            "skip": "The weights are left as they are and training continues",
            "continue": "Training continues",
        }[self._policy]
        self._context.emit(
            WarningEvent(
                message=f"{self._broken} at step {step}. {next_move}"
                f" (training.on_nan={self._policy}).",
                remedy=f"`llmops stop {self._context.run_id}`, then {self._advice()}",
            )
        )

    def _error(self, problem: str) -> DivergedError:
        return DivergedError(
            f"{problem} The model was not exported.",
            remedy=f"{self._advice()}: `llmops resubmit {self._context.run_id}"
            f" optimizer.learning_rate={self._config.optimizer.learning_rate / 10:g}`",
        )

    def _advice(self) -> str:
        optimizer = self._config.optimizer
        return (
            f"lower optimizer.learning_rate (was {optimizer.learning_rate:g}) or raise"
            f" optimizer.warmup_steps (was {optimizer.warmup_steps})"
        )


def _broken_step(loss: float, grad_norm: float | None) -> str:
    if not math.isfinite(loss):
        return f"The loss is {loss}"
    if grad_norm is not None and not math.isfinite(grad_norm):
        return f"The gradient norm is {grad_norm} (the loss is {loss:.4g})"
    return ""
