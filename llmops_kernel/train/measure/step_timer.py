"""Splits an optimizer step's time, and sums its tokens over all workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from llmops_kernel.driver.beats import BeatWriter
from llmops_kernel.metrics.model_work import Computed
from llmops_kernel.train.data.collate import COUNTS, KEPT
from llmops_kernel.train.measure.step_parts import Part, StepParts

_WHOLE = 10**9
"""A share of 1 as an integer."""
_Counted = tuple[torch.Tensor, torch.Tensor | None]
"""Rows' counts summed, and those of the input of the model."""


@dataclass(frozen=True)
class StepCounts:
    """Counts of one optimizer step, summed over all workers."""

    tokens: int
    sum_squared_lengths: int
    logit_tokens: int
    """Tokens whose logits are computed."""
    stop: bool
    """A worker was asked to stop; all workers see it in the same step."""
    finished: bool = False
    """All workers have trained on their last row."""
    progress: float = 0.0
    """Share of the rows that was trained on, the mean of the workers."""
    computed: Computed | None = None
    """Input of the model; None where it is not known."""
    profile: int = 0
    """Steps that somebody asks to profile; all workers see it in the same step."""
    inner: StepCounts | None = None
    """Of batches inside of the batches: sequences that are read, and not trained on."""


class StepTimer:
    """Times the steps of one worker. Call `mark` when a step, an evaluation or a save ends."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_gpu: bool = False,
        beat: BeatWriter | None = None,
    ) -> None:
        self._clock = clock
        self.parts = StepParts(on_gpu=on_gpu, clock=clock, beat=beat)
        self.taken: dict[Part, float] = {}
        """Seconds of each part of what the last mark has ended."""
        self._marked = clock()
        self._data_wait_s = 0.0
        self._counted: tuple[list[_Counted], list[_Counted]] = ([], [])
        """Of the batches, and of those inside of them."""

    def mark(self) -> tuple[float, float]:
        """Return the seconds since the last mark and those of them spent waiting for data."""
        self.taken = self.parts.take()
        now = self._clock()
        step_time_s, data_wait_s = now - self._marked, self._data_wait_s
        self._marked, self._data_wait_s = now, 0.0
        return step_time_s, data_wait_s

    def timed(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the same batches without their counts, and measure the wait for each."""
        return _TimedBatches(batches, self)

    def add_batch(self, batch: dict[str, Any], wait_s: float) -> None:
        """Add one batch's token counts and the seconds it was waited for."""
        self._data_wait_s += wait_s
        inner = [value for value in batch.values() if isinstance(value, dict)]
        for counted, parts in zip(self._counted, ([batch], inner), strict=True):
            for part in parts:
                counts = part.pop(COUNTS, None)
                if counts is not None:
                    counted.append((counts.sum(dim=0), computed_counts(part)))

    def now(self) -> float:
        return self._clock()

    def reduce(
        self,
        *,
        device: torch.device,
        stop: bool,
        finished: bool = False,
        progress: float = 0.0,
        profile: int = 0,
    ) -> StepCounts:
        """Sum over the workers, in the only collective that we add to a step (18 integers)."""
        totals = torch.zeros(18, dtype=torch.int64, device=device)
        totals[3] = profile
        for begin, counted in zip((4, 11), self._counted, strict=True):
            for counts, computed in counted:
                totals[begin : begin + 3] += counts.to(device)
                if computed is not None:
                    totals[begin + 3 : begin + 7] += computed.to(device)
            counted.clear()
        totals[0], totals[1], totals[2] = int(stop), int(not finished), round(progress * _WHOLE)
        workers = 1
        if dist.is_available() and dist.is_initialized():
            workers = dist.get_world_size()
        if workers > 1:
            dist.all_reduce(totals)
        stops, unfinished, shares, profiled, *sums = map(int, totals.tolist())
        return replace(
            _step_counts(sums[:7]),
            stop=bool(stops),
            finished=not unfinished,
            progress=shares / (workers * _WHOLE),
            profile=profiled,
            inner=_step_counts(sums[7:]) if any(sums[7:]) else None,
        )


def _step_counts(sums: list[int]) -> StepCounts:
    tokens, squares, logits, *computed = sums
    of_input = Computed(*computed) if computed[0] else None
    return StepCounts(tokens, squares, logits, stop=False, computed=of_input)


class _TimedBatches:
    def __init__(self, batches: Iterator[dict[str, Any]], timer: StepTimer) -> None:
        self._batches = batches
        self._timer = timer

    def __iter__(self) -> _TimedBatches:
        return self

    def __next__(self) -> dict[str, Any]:
        begin = self._timer.now()
        with self._timer.parts.inside("data"):
            batch = next(self._batches)
        self._timer.add_batch(batch, self._timer.now() - begin)
        return batch


# --- Counts of a batch, padding included ---


def computed_counts(batch: dict[str, Any]) -> torch.Tensor | None:
    """Return tokens, logits, and width^2 of the rows with and without a mask, as four integers.

    As Transformers decides it (5.23, `masking_utils`): a batch without padding and with one row
    a sequence has no mask. On the batch's device, without waiting for it.
    """
    ids = batch.get("input_ids")
    if ids is None:
        return None
    rows, width = ids.shape
    square, tokens = (
        torch.full((), number, dtype=torch.int64, device=ids.device)
        for number in (rows * width * width, rows * width)
    )
    masked = square * _has_mask(batch).to(square.dtype)
    logit_positions = batch.get(KEPT)
    logits = tokens if logit_positions is None else logit_positions.sum()
    return torch.stack([tokens, logits, masked, square - masked])


def _has_mask(batch: dict[str, Any]) -> torch.Tensor:
    mask, positions = batch.get("attention_mask"), batch.get("position_ids")
    if mask is not None:
        return (mask == 0).any()
    if positions is not None:
        return (positions.diff(dim=-1) != 1).any()
    return torch.zeros((), dtype=torch.bool, device=batch["input_ids"].device)
