"""Counts steps, tokens and time. Pure: the clock and the number of workers are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsFloat

Number = SupportsFloat
"""A number, or a tensor of one element."""


@dataclass(frozen=True)
class CountedStep:
    """One optimizer step; the mean if there were several since the last report."""

    step: int
    time_s: float | None
    tokens: int | None
    tokens_per_second: float | None


class StepCounter:
    """Numbers the steps and divides time and tokens among them."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marked_s: float | None = None
        self.last_step = 0

    def mark(self) -> None:
        """Let the next step begin now: after an evaluation, a checkpoint, or `start`."""
        self._marked_s = self._clock()

    def continue_after(self, step: int) -> None:
        self.last_step = step

    def count(self, *, step: int | None, tokens: int | None) -> CountedStep:
        """Count a report; `tokens` are of all workers, since the last report."""
        now_s = self._clock()
        number = self.last_step + 1 if step is None else int(step)
        elapsed_s = None if self._marked_s is None else now_s - self._marked_s
        # A script may report each tenth step only.
        steps = max(1, number - self.last_step)
        if elapsed_s is None and steps > 1:
            steps, tokens = 1, None  # Where the first of them began is unknown.
        self._marked_s, self.last_step = now_s, number
        return CountedStep(
            step=number,
            time_s=None if elapsed_s is None else elapsed_s / steps,
            tokens=None if tokens is None else round(tokens / steps),
            tokens_per_second=tokens / elapsed_s if tokens is not None and elapsed_s else None,
        )


def all_tokens(
    *,
    num_workers: int,
    tokens: int | None = None,
    tokens_per_worker: int | None = None,
    total_tokens: int | None = None,
) -> int | None:
    """Return the tokens of all workers together; None when what is given does not say it."""
    if total_tokens is not None:
        return int(total_tokens)
    if tokens_per_worker is not None:
        return int(tokens_per_worker) * num_workers
    return int(tokens) if tokens is not None and num_workers == 1 else None


def number(value: Any) -> float | None:
    """Return a number or a tensor of one element as a float, NaN included."""
    if value is None:
        return None
    detach = getattr(value, "detach", None)
    return float(value if detach is None else detach())
