"""Figures of a whole run: totals over its steps, not what the last of them happened to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from llmops_kernel.metrics.events import CheckpointEvent, EvalEvent, StartEvent, StepEvent
from llmops_kernel.metrics.step_sums import StepSums
from llmops_kernel.store.journal.spans import PhaseSpan

UTILIZATIONS = ("mfu", "mfu_palm", "hfu", "recomputed")
PARTS = ("data_wait_s", "passes_s", "communication_s", "optimizer_s", "offload_s", "between_s")
_ALL = ("tokens", *UTILIZATIONS)


def sums_of(steps: Iterable[StepEvent]) -> StepSums:
    """Add up steps; one that stands for others counts for all of them.

    A step without a time, such as the first of a script, adds nothing.
    """
    count, time_s = 0, 0.0
    totals = dict.fromkeys(_ALL, 0.0)
    known_s = dict.fromkeys(_ALL, 0.0)
    parts, parts_of = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
    for step in steps:
        sums, seconds = step.stands_for, step.step_time_s
        if sums is not None:
            count, time_s = count + sums.steps, time_s + sums.time_s
            for name in _ALL:
                totals[name] += getattr(sums, name)
                known_s[name] += getattr(sums, f"{name}_s")
            for name in PARTS:
                parts[name] += sums.parts.get(name, 0.0)
                parts_of[name] += sums.parts_of.get(name, 0.0)
            continue
        if seconds is None:
            continue
        count, time_s = count + 1, time_s + seconds
        if step.tokens is not None:
            totals["tokens"] += step.tokens
            known_s["tokens"] += seconds
        for name in UTILIZATIONS:
            value = getattr(step, name)
            if value is not None:
                totals[name] += value * seconds
                known_s[name] += seconds
        for name in PARTS:
            if (part_s := getattr(step, name)) is not None:
                parts[name] += part_s
                parts_of[name] += seconds
    seconds_of = {f"{name}_s": total for name, total in known_s.items()}
    return StepSums(
        steps=count, time_s=time_s, parts=parts, parts_of=parts_of, **totals, **seconds_of
    )


def with_sums(thinned: Sequence[StepEvent], group: Sequence[StepEvent]) -> list[StepEvent]:
    """Let the first of the kept steps stand for all of the group they were kept of."""
    if len(thinned) == len(group):
        return list(thinned)
    first = thinned[0].model_copy(update={"stands_for": sums_of(group)})
    return [first, *(step.model_copy(update={"stands_for": StepSums()}) for step in thinned[1:])]


def at_peak(steps: Iterable[StepEvent], ratio: float) -> list[StepEvent]:
    """Return the steps with utilizations of a peak so many times the one they were written with."""
    return [_at_peak(step, ratio) for step in steps]


def _at_peak(step: StepEvent, ratio: float) -> StepEvent:
    update: dict[str, Any] = {
        name: value / ratio for name in UTILIZATIONS if (value := getattr(step, name)) is not None
    }
    if step.stands_for is not None:
        shares = {name: getattr(step.stands_for, name) / ratio for name in UTILIZATIONS}
        update["stands_for"] = step.stands_for.model_copy(update=shares)
    return step.model_copy(update=update)


class WholeRun:
    """Sums over all steps, without those that start a worker group: these are slow."""

    def __init__(
        self, parts: Mapping[str, Sequence[StepEvent]], *, rates: Mapping[str, float]
    ) -> None:
        """Sum up `parts`, the steps that count, by the stream of their worker group.

        `rates` is the peak of all devices of each group, by which utilizations are weighed.
        """
        self._sums = {stream: sums_of(steps) for stream, steps in parts.items()}
        self._rates = rates

    @property
    def steps(self) -> int:
        return sum(sums.steps for sums in self._sums.values())

    @property
    def time_s(self) -> float:
        return sum(sums.time_s for sums in self._sums.values())

    def share(self, part: str) -> float | None:
        """Return the share of the steps' time that a part of them takes, such as `optimizer_s`."""
        seconds = sum(sums.parts.get(part, 0.0) for sums in self._sums.values())
        return _ratio(seconds, sum(sums.parts_of.get(part, 0.0) for sums in self._sums.values()))

    @property
    def step_time_s(self) -> float | None:
        """Mean of the steps."""
        return _ratio(self.time_s, self.steps)

    @property
    def tokens_per_second(self) -> float | None:
        """Return all tokens by the time of their steps."""
        seconds = sum(sums.tokens_s for sums in self._sums.values())
        return _ratio(sum(sums.tokens for sums in self._sums.values()), seconds)

    def utilization(self, name: str) -> float | None:
        """Return the share of the devices' peak that was used in the time of the steps."""
        computed = possible = 0.0
        for stream, sums in self._sums.items():
            rate = self._rates.get(stream, 1.0)
            computed += getattr(sums, name) * rate
            possible += getattr(sums, f"{name}_s") * rate
        return _ratio(computed, possible)


def _ratio(number: float, divisor: float) -> float | None:
    """Return it with the digits that do not depend on the order in which steps were added up."""
    return float(f"{number / divisor:.9g}") if divisor else None


# --- Remaining time of a training: steps, evaluations and saves to come ---


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
    """Work that is repeated between steps: evaluations, or checkpoints."""

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
        """Return the median of the last times; None before the first."""
        return median(self.took_s[-_RECENT:]) if self.took_s else None

    def left(self, last: int, total: int) -> TimeLeft:
        """Return the time of those that are to come after `last` of `total` steps."""
        done_steps = set(self.done)
        # Only the last step's own may still be to come; what it has skipped is not made up for.
        first = -(-max(last, 1) // self.every) * self.every if self.every else total
        steps = range(first, total, self.every or 1)
        between = len(steps) - sum(1 for step in done_steps if step in steps)
        count = between + (0 if total in done_steps else self.at_end)
        if not count:
            return TimeLeft(0.0)
        usual_s = self.usual_s
        return TimeLeft(0.0, is_least=True) if usual_s is None else TimeLeft(count * usual_s)


def evaluations(start: StartEvent, events: Sequence[EvalEvent]) -> Repeated:
    """Return how often the run evaluates: as it said at its start, else as it did so far."""
    done_steps = tuple(event.step for event in events)
    took_s = tuple(event.duration_s for event in events if event.duration_s is not None)
    if start.evaluate_every is not None:
        return Repeated(done_steps, took_s, start.evaluate_every, int(bool(start.evaluates_at_end)))
    every = _spacing(done_steps)
    is_due = bool(every) and start.total_steps % every == 0
    return Repeated(done_steps, took_s, every, int(is_due))


def saves(
    start: StartEvent, events: Sequence[CheckpointEvent], spans: Iterable[PhaseSpan]
) -> Repeated:
    """Return how often the run saves; its output takes as long as a checkpoint, as far as known."""
    done_steps = tuple(event.step for event in events)
    took_s = [event.duration_s for event in events if event.duration_s is not None]
    took_s += [
        span.duration_s
        for span in spans
        if span.name == "save" and span.duration_s is not None and not span.interrupted
    ]
    if start.save_every is None:
        every = _spacing(done_steps)
        return Repeated(done_steps, tuple(took_s), every)
    return Repeated(done_steps, tuple(took_s), start.save_every, 1)


def _spacing(done_steps: Sequence[int]) -> int:
    """Return the steps between the last two, or up to the only one."""
    steps = sorted({0, *done_steps})
    return steps[-1] - steps[-2] if len(steps) > 1 else 0
