"""The learning rate of a training that ends with its rows, however many steps that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StreamSchedule:
    """A factor of the learning rate by the share of the data that has been trained on.

    Upstream's schedules count steps up to a total. Where the total is an estimate, a cosine rises
    again after it, and a run that goes on with a better estimate follows another curve. So the
    step that upstream's function gets is the same share of the first estimate as that of the data:
    the curve ends with the rows. The warm-up is counted in real steps.

    It replaces the functions of PyTorch's `LambdaLR`, which saves all but the function in
    checkpoints: a resumed run follows the curve that it began with, whatever is known by then.
    """

    __slots__ = ("__dict__", "_function", "_function_total")

    def __init__(self, *, warmup: int, by_progress: bool) -> None:
        self.warmup = warmup
        self.by_progress = by_progress
        """False: the total is exact, and steps are counted."""
        self.total = 1
        self.progress = 0.0
        """Share of the rows that was trained on after `steps` steps."""
        self.steps = 0
        self._function: Callable[[float], float] = lambda step: 1.0
        self._function_total = 1

    def replace_in(self, scheduler: Any, *, total: int) -> None:
        """Replace the functions of a `LambdaLR`, which all parameter groups share."""
        self._function, self._function_total = scheduler.lr_lambdas[0], total
        self.total = total
        scheduler.lr_lambdas = [self] * len(scheduler.lr_lambdas)

    def note(self, *, steps: int, progress: float) -> None:
        """Note how far all workers together are; call it alike on all of them."""
        self.steps, self.progress = steps, progress

    def __call__(self, step: int) -> float:
        """Return the factor of the rate after so many steps."""
        return self._function(self._position(step))

    def _position(self, step: int) -> float:
        """Return the step at which upstream's function is called."""
        if step <= self.warmup:
            return step
        done: float = step
        if self.by_progress:
            # The rate is set before the step's own progress is noted.
            share = self.progress * step / self.steps if self.steps else 0.0
            done = share * self.total
        curve = max(1, self.total - self.warmup)
        share = min(1.0, max(0.0, (done - self.warmup) / curve))
        # A resumed run may have made its function with another total.
        return self.warmup + share * max(1, self._function_total - self.warmup)


def steps_in_all(step: int, progress: float) -> int:
    """Return the total of steps to expect from the share of the rows that was trained on so far."""
    ahead = step / progress if 0 < progress < 1 else step * 1.01
    return max(step + 1, round(ahead))
