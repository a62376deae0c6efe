"""The reaction of a run to a loss or gradient that is NaN or infinite (`training.on_nan`).

What is said of it names the rows of the batch; so does the warning of a loss that jumps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DivergedError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Group

MAX_SKIPPED_IN_A_ROW = 10
"""Once the weights themselves are broken, skipping steps does not repair them."""


RowsOfBatch = tuple[bool, float, str]
"""Whether the loss of the worst micro batch is not finite, that loss, and its rows in words."""


class DivergenceGuard:
    """Checks each step and evaluation; raises DivergedError where the run should end.

    Call it on every worker with the same numbers (the mean loss, the global gradient norm, the
    loss on all held-out rows): all workers then leave at the same step, without a collective. Only
    where there is something to report they tell each other which rows were in their batches.
    """

    def __init__(
        self,
        context: WorkerContext,
        config: TrainingConfig,
        rows: Callable[[], RowsOfBatch] = lambda: (False, 0.0, ""),
    ) -> None:
        """Set up the guard. `rows` tells of this worker's rows in the step; called on all."""
        self._rows, self._spikes = rows, LossSpikes()
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
            if (usual := self._spikes.add(loss)) is not None:
                self._warn_of_spike(step, loss, usual)
            return
        self.num_not_finite += 1
        self._skipped_in_a_row += 1
        if self._policy == "stop":
            raise self._error(f"{self._broken} at step {step}.{self._rows_of_step()}")
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
        self._warn_once(step, in_step=False)

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

    def _warn_of_spike(self, step: int, loss: float, usual: float) -> None:
        self._context.emit(
            WarningEvent(
                message=f"The loss jumps to {loss:.4g} at step {step}; the median of the steps"
                f" before is {usual:.4g}.{self._rows_of_step()}",
                remedy=f"look at these rows; if it stays high, {self._advice()}",
            )
        )

    def _rows_of_step(self) -> str:
        """Return which rows were in the batches that are to blame, in a sentence; on all ranks.

        Those whose own loss is not finite; where all are, those with the highest loss.
        """
        told = list(enumerate(gather(self._rows())))
        bad = [(rank, words) for rank, (is_bad, _, words) in told if is_bad and words]
        if not bad:
            rank, (_, _, words) = max(told, key=lambda one: one[1][1])
            bad = [(rank, words)] if words else []
        listed = "; ".join(f"rank {rank}, {words}" for rank, words in bad[:_MOST_NAMED])
        more = f" and {len(bad) - _MOST_NAMED} more ranks" if len(bad) > _MOST_NAMED else ""
        return f" The batch: {listed}{more}." if listed else ""

    def _warn_once(self, step: int, *, in_step: bool = True) -> None:
        if self._first_step is not None:
            return
        self._first_step = step
        rows = self._rows_of_step() if in_step else ""
        next_move = {
            "skip": "The weights are left as they are and training continues",
            "continue": "Training continues",
        }[self._policy]
        self._context.emit(
            WarningEvent(
                message=f"{self._broken} at step {step}.{rows} {next_move}"
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


# --- A loss that jumps ---


class LossSpikes:
    """Compares each loss with those of the last 50 steps."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=50)
        self._wait = 0

    def add(self, loss: float) -> float | None:
        """Return the median of the losses before if this one is far above it, else None.

        Far: twice the median, and ten of its standard deviations as the median absolute deviation
        estimates it (x 1.4826). After one the next 50 steps are none: they are its consequence.
        """
        before, self._wait = list(self._recent), max(0, self._wait - 1)
        self._recent.append(loss)
        if len(before) < 20 or self._wait:
            return None
        middle = median(before)
        deviation = 1.4826 * median(abs(value - middle) for value in before)
        if middle <= 0 or loss <= 2 * middle or loss <= middle + 10 * deviation:
            return None
        self._wait = 50
        return middle


# --- The rows of a step ---


_MOST_NAMED: Final = 4
_MOST_CHARACTERS: Final = 48


class StepBatches:
    """The micro batches of this worker's newest step, kept to say which rows were in them.

    Keeps references only: nothing is copied or read from the device before it is needed.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        """Forget those of the step before."""
        self._batches = []

    def add(self, inputs: Mapping[str, Any], loss: Any) -> None:
        """Keep a micro batch that was passed through the model, and its loss."""
        self._batches.append((inputs, loss))

    def worst(self, rows: Any, tokenizer: Any) -> RowsOfBatch:
        """Return the worst micro batch; `rows`: the training rows in memory, or a stream's."""
        if not self._batches:
            return False, 0.0, ""
        losses = [float(loss) for _, loss in self._batches]
        place = max(range(len(losses)), key=lambda n: (not math.isfinite(losses[n]), losses[n]))
        sequences = [ids for ids in _sequences(self._batches[place][0]) if ids]
        is_bad = not math.isfinite(losses[place])
        of = f" {place + 1} of {len(losses)}" if len(losses) > 1 else ""
        words = f"micro batch{of}: {_in_words(sequences, rows, tokenizer)}" if sequences else ""
        return is_bad, 0.0 if is_bad else losses[place], words


def _sequences(inputs: Mapping[str, Any]) -> Iterator[list[int]]:
    """Yield the tokens of each sequence of a batch, without padding."""
    ids = inputs.get("input_ids")
    if ids is None:  # An objective has several batches in one.
        for part in inputs.values():
            if isinstance(part, Mapping):
                yield from _sequences(part)
        return
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    for number, row in enumerate(ids.tolist()):
        if mask is not None:
            yield [
                token for token, counts in zip(row, mask[number].tolist(), strict=True) if counts
            ]
        elif positions is not None:  # Laid end to end: each begins at position 0.
            begins = [n for n, at in enumerate(positions[number].tolist()) if at == 0]
            for begin, end in pairwise([*begins, len(row)]):
                yield row[begin:end]
        else:
            yield row


def _in_words(sequences: Sequence[list[int]], rows: Any, tokenizer: Any) -> str:
    named = []
    numbers = _numbers(sequences, rows)
    for ids in sequences[:_MOST_NAMED]:
        text = " ".join(str(tokenizer.decode(ids[:64], skip_special_tokens=True)).split())
        cut = f"{text[:_MOST_CHARACTERS]}…" if len(text) > _MOST_CHARACTERS else text
        number = numbers.get(tuple(ids))
        named.append(f"row {number} “{cut}”" if number is not None else f"“{cut}”")
    more = len(sequences) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _numbers(sequences: Sequence[list[int]], rows: Any) -> dict[tuple[int, ...], int]:
    """Return sequence -> its number among the rows, from 1; of streamed rows there is none."""
    if not isinstance(rows, Sequence):
        return {}
    sought = {tuple(ids) for ids in sequences}
    numbers: dict[tuple[int, ...], int] = {}
    for number, row in enumerate(rows, start=1):
        for part in row.parts if isinstance(row, Group) else (row,):
            key = tuple(part.input_ids)
            if key in sought:
                numbers.setdefault(key, number)
    return numbers
