"""Recent speed of a run, robust against the odd slow step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class _Step:
    time_s: float
    tokens: int
    flops: float | None


class Window:
    """Medians over the last steps of one attempt, its first step left out.

    The first step pays for allocation, kernels and compilation, and a step next to a checkpoint or
    an evaluation may be slow: a median is not affected by them, a mean is.
    """

    def __init__(self, *, size: int = 10, skip: int = 1) -> None:
        """`size`: steps looked at; `skip`: first steps never looked at."""
        self._steps: deque[_Step] = deque(maxlen=size)
        self._skip = skip

    def add(self, *, time_s: float, tokens: int = 0, flops: float | None = None) -> None:
        """Take one step in; `tokens` and `flops` are those of all workers together."""
        if self._skip > 0:
            self._skip -= 1
        else:
            self._steps.append(_Step(time_s, tokens, flops))

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def step_time_s(self) -> float | None:
        return _median([step.time_s for step in self._steps])

    @property
    def tokens_per_second(self) -> float | None:
        return _median([step.tokens / step.time_s for step in self._steps if step.time_s > 0])

    @property
    def flops_per_second(self) -> float | None:
        """Return the rate; None while a step of unknown FLOPs or time is in the window."""
        rates = [
            step.flops / step.time_s
            for step in self._steps
            if step.flops is not None and step.time_s > 0
        ]
        return _median(rates) if len(rates) == len(self._steps) else None

    def mfu(self, *, peak_flops: float | None, num_workers: int = 1) -> float | None:
        """Median MFU, 0..1; None when the FLOPs or the peak are unknown."""
        rate = self.flops_per_second
        if rate is None or not peak_flops:
            return None
        return rate / (peak_flops * num_workers)

    def eta_s(self, steps_left: int) -> float | None:
        """Seconds until the last step at the recent speed; None before the second step."""
        time_s = self.step_time_s
        if steps_left <= 0:
            return 0.0
        return None if time_s is None else steps_left * time_s


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
