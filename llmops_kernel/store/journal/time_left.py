"""How long a training still takes: its steps, and the evaluations and saves that are to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from llmops_kernel.metrics.events import CheckpointEvent, EvalEvent, StartEvent
from llmops_kernel.store.journal.spans import PhaseSpan

_RECENT = 5
"""So many last evaluations, or saves, say how long the next takes."""


@dataclass(frozen=True)
class TimeLeft:
    """An estimate from what the run has measured itself."""

    seconds: float
    is_least: bool = False
    """Something is to come that the run has not done so far, so nobody knows how long it takes."""

    def plus(self, other: TimeLeft) -> TimeLeft:
        return TimeLeft(self.seconds + other.seconds, self.is_least or other.is_least)


@dataclass(frozen=True)
class Repeated:
    """What is done between steps again and again: evaluations, or checkpoints."""

    done: tuple[int, ...]
    """After which steps it was done."""
    took_s: tuple[float, ...]
    """How long, as far as it is known."""
    every: int
    """Steps between two; 0: none of it."""
    at_end: int = 0
    """How often it is done after the last step."""

    @property
    def usual_s(self) -> float | None:
        """Median of the last times; None before the first."""
        return median(self.took_s[-_RECENT:]) if self.took_s else None

    def left(self, last: int, total: int) -> TimeLeft:
        """Return the time of those that are to come after `last` of `total` steps."""
        done = set(self.done)
        # Only the last step's own may still be to come; what it has skipped is not made up for.
        first = -(-max(last, 1) // self.every) * self.every if self.every else total
        steps = range(first, total, self.every or 1)
        between = len(steps) - sum(1 for step in done if step in steps)
        count = between + (0 if total in done else self.at_end)
        if not count:
            return TimeLeft(0.0)
        usual_s = self.usual_s
        return TimeLeft(0.0, is_least=True) if usual_s is None else TimeLeft(count * usual_s)


def evaluations(start: StartEvent, events: Sequence[EvalEvent]) -> Repeated:
    """Return how often the run evaluates: as it said at its start, else as it did so far."""
    done = tuple(event.step for event in events)
    took_s = tuple(event.duration_s for event in events if event.duration_s is not None)
    if start.evaluate_every is not None:
        return Repeated(done, took_s, start.evaluate_every, int(bool(start.evaluates_at_end)))
    every = _spacing(done)
    is_due = bool(every) and start.total_steps % every == 0
    return Repeated(done, took_s, every, int(is_due))


def saves(
    start: StartEvent, events: Sequence[CheckpointEvent], spans: Iterable[PhaseSpan]
) -> Repeated:
    """Return how often the run saves; its output takes as long as a checkpoint, as far as known."""
    done = tuple(event.step for event in events)
    took_s = [event.duration_s for event in events if event.duration_s is not None]
    took_s += [
        span.duration_s
        for span in spans
        if span.name == "save" and span.duration_s is not None and not span.interrupted
    ]
    if start.save_every is None:
        every = _spacing(done)
        return Repeated(done, tuple(took_s), every)
    return Repeated(done, tuple(took_s), start.save_every, 1)


def _spacing(done: Sequence[int]) -> int:
    """Return the steps between the last two, or up to the only one."""
    steps = sorted({0, *done})
    return steps[-1] - steps[-2] if len(steps) > 1 else 0
