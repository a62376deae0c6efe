"""Figures of a whole run: totals over its steps, not what the last of them happened to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmops_kernel.metrics.events import StepEvent, StepSums

UTILIZATIONS = ("mfu", "mfu_palm", "hfu")
_ALL = ("tokens", *UTILIZATIONS)


def sums_of(steps: Iterable[StepEvent]) -> StepSums:
    """Add up steps; one that stands for others counts for all of them.

    A step without a time, such as the first of a script, adds nothing.
    """
    count, time_s = 0, 0.0
    found = dict.fromkeys(_ALL, 0.0)
    known_s = dict.fromkeys(_ALL, 0.0)
    for step in steps:
        sums, seconds = step.stands_for, step.step_time_s
        if sums is not None:
            count, time_s = count + sums.steps, time_s + sums.time_s
            for name in _ALL:
                found[name] += getattr(sums, name)
                known_s[name] += getattr(sums, f"{name}_s")
            continue
        if seconds is None:
            continue
        count, time_s = count + 1, time_s + seconds
        if step.tokens is not None:
            found["tokens"] += step.tokens
            known_s["tokens"] += seconds
        for name in UTILIZATIONS:
            value = getattr(step, name)
            if value is not None:
                found[name] += value * seconds
                known_s[name] += seconds
    seconds_of = {f"{name}_s": total for name, total in known_s.items()}
    return StepSums(steps=count, time_s=time_s, **found, **seconds_of)


def with_sums(kept: Sequence[StepEvent], group: Sequence[StepEvent]) -> list[StepEvent]:
    """Let the first of the kept steps stand for all of the group they were kept of."""
    if len(kept) == len(group):
        return list(kept)
    first = kept[0].model_copy(update={"stands_for": sums_of(group)})
    return [first, *(one.model_copy(update={"stands_for": StepSums()}) for one in kept[1:])]


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
    """What all steps come to, without those that start a worker group: these are slow."""

    def __init__(
        self, parts: Mapping[str, Sequence[StepEvent]], *, rates: Mapping[str, float]
    ) -> None:
        """`parts`: the steps that count, by the stream of their worker group; `rates`: the peak of
        all devices of each group, by which utilizations of unlike groups are weighed.
        """
        self._sums = {stream: sums_of(steps) for stream, steps in parts.items()}
        self._rates = rates

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self._sums.values())

    @property
    def step_time_s(self) -> float | None:
        """Mean of the steps."""
        time_s = sum(one.time_s for one in self._sums.values())
        return _ratio(time_s, self.steps)

    @property
    def tokens_per_second(self) -> float | None:
        """All tokens by the time of their steps."""
        seconds = sum(one.tokens_s for one in self._sums.values())
        return _ratio(sum(one.tokens for one in self._sums.values()), seconds)

    def utilization(self, name: str) -> float | None:
        """What was computed by what the devices could have computed in the time of the steps."""
        computed = possible = 0.0
        for stream, sums in self._sums.items():
            rate = self._rates.get(stream, 1.0)
            computed += getattr(sums, name) * rate
            possible += getattr(sums, f"{name}_s") * rate
        return _ratio(computed, possible)


def _ratio(number: float, of: float) -> float | None:
    """Return it with the digits that do not depend on the order in which steps were added up."""
    return float(f"{number / of:.9g}") if of else None
