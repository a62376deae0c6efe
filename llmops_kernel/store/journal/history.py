"""Steps, evaluations and checkpoints that remain after restarts and retries."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeVar

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    RestartEvent,
    StartEvent,
    StepEvent,
)
from llmops_kernel.store.journal import whole_run
from llmops_kernel.store.journal.whole_run import WholeRun, with_sums

Key = tuple[int, int]
"""(attempt, worker group)."""


T = TypeVar("T", StepEvent, EvalEvent, CheckpointEvent)


@dataclass
class Generation:
    """Events of one worker group."""

    key: Key
    starts: list[StartEvent] = field(default_factory=list)
    steps: dict[int, StepEvent] = field(default_factory=dict)
    evals: list[EvalEvent] = field(default_factory=list)
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    first_done: int | None = None
    """Number of its first step, kept so that the steps need not be searched."""
    first_done_s: float | None = None
    """When it made its earliest step."""
    last_done_s: float | None = None
    """When it made its latest step."""

    def add_steps(self, events: Sequence[StepEvent]) -> None:
        numbers = [event.step for event in events]
        first, first_s = min(numbers), min([event.time_s for event in events])
        last_s = max([event.time_s for event in events])
        self.last_done_s = last_s if self.last_done_s is None else max(self.last_done_s, last_s)
        self.first_done = first if self.first_done is None else min(self.first_done, first)
        self.first_done_s = (
            first_s if self.first_done_s is None else min(self.first_done_s, first_s)
        )
        by_number = dict(zip(numbers, events, strict=True))
        if len(by_number) == len(events) and self.steps.keys().isdisjoint(by_number):
            self.steps |= by_number
            return
        for event in events:
            present = self.steps.get(event.step)
            if present is None or _order(present) < _order(event):
                self.steps[event.step] = event

    def thin(self, *, stride: int, edges: Sequence[int]) -> None:
        """Keep fewer steps for the same curves."""
        ordered = sorted(self.steps.values(), key=lambda event: event.step)
        thinned = thin(ordered, stride=stride, edges=edges)
        self.steps = {event.step: event for event in thinned}

    def at_peak(self, peak_flops: float | None) -> Iterable[StepEvent]:
        """Return the steps, with utilizations of this peak instead of the one known before them."""
        ratio = self.peak_ratio(peak_flops)
        return self.steps.values() if ratio == 1 else whole_run.at_peak(self.steps.values(), ratio)

    def peak_ratio(self, peak_flops: float | None) -> float:
        """Return how many times the peak known before the steps this one is; 1 if unknown."""
        before = min(self.starts, key=_order, default=None)
        if peak_flops is None or before is None or not before.peak_flops:
            return 1.0
        return peak_flops / before.peak_flops

    @property
    def start(self) -> StartEvent | None:
        return max(self.starts, key=_order, default=None)

    @property
    def first_step(self) -> int | None:
        """Return the number of its first step, past or expected; None while nothing is known."""
        first = [start.first_step for start in self.starts]
        return min(first if self.first_done is None else [*first, self.first_done], default=None)


@dataclass
class History:
    """One event per step; steps that a newer worker group repeated replace the older ones."""

    steps: list[StepEvent] = field(default_factory=list)
    evals: list[EvalEvent] = field(default_factory=list)
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    warmups: set[tuple[str, int]] = field(default_factory=set)
    """(stream, step) of each group's first step, which is slow and left out of averages."""
    loss: float | None = None
    """The loss of the last step that has one, NaN included."""
    nan_since: int | None = None
    """First step of the NaN (or infinite) losses that reach up to the newest known loss."""
    peak_memory_bytes: int | None = None
    logged: dict[str, None] = field(default_factory=dict)
    """Names of the further numbers of all steps, in order of appearance."""
    whole: WholeRun | None = None
    """What the steps come to, once it was asked for."""
    is_outdated: bool = False
    """True while all steps have to be made again and none has been so far: these are the last
    known ones."""

    def takes(self, event: EvalEvent | CheckpointEvent, restarts: Sequence[RestartEvent]) -> bool:
        """Add an event of the newest group if it comes after all others; else return False."""
        events: list[Any] = self.evals if isinstance(event, EvalEvent) else self.checkpoints
        if any(previous.step >= event.step for previous in events):
            return False
        if any(_undoes(restart, event) for restart in restarts):
            return False
        events.append(event)
        return True

    def extend(self, events: Sequence[StepEvent]) -> None:
        """Add steps that follow those that are here."""
        self.steps += events
        self.whole = None
        self.add_up(events)

    def add_up(self, events: Sequence[StepEvent]) -> None:
        """Update the totals, so that the steps need not be searched for them."""
        for event in events:
            if event.profiled:
                self.warmups.add((event.stream, event.step))
            if event.values:
                self.logged |= dict.fromkeys(event.values)
            loss = event.loss
            if loss is None:
                continue
            self.loss = loss
            if math.isfinite(loss):
                self.nan_since = None
            elif self.nan_since is None:
                self.nan_since = event.step
        peaks = [e.peak_memory_bytes for e in events if e.peak_memory_bytes is not None]
        earlier = [] if self.peak_memory_bytes is None else [self.peak_memory_bytes]
        self.peak_memory_bytes = max(peaks + earlier, default=None)


def fold(generations: Iterable[Generation], restarts: Sequence[RestartEvent]) -> History:
    """Overlay the generations, oldest first.

    A newer group replaces all from its first step on; a restart removes what its attempt did
    after the checkpoint even before the new group has reported anything. Where that leaves no
    step, the last known ones stay until the first new step.
    """
    history = History()
    generations = sorted(generations, key=lambda generation: generation.key)
    for generation in generations:
        first = generation.first_step
        if first is not None:
            history.steps = [event for event in history.steps if event.step < first]
            history.evals = [event for event in history.evals if event.step < first]
            history.checkpoints = [event for event in history.checkpoints if event.step < first]
        repeated_steps = {event.step for event in generation.evals}
        history.evals = [event for event in history.evals if event.step not in repeated_steps]
        peak = highest_peak(generation, generations)
        history.steps += _without_undone(generation.at_peak(peak), restarts)
        history.evals += _without_undone(generation.evals, restarts)
        history.checkpoints += _without_undone(generation.checkpoints, restarts)
        if generation.first_done is not None:
            step = generation.steps[generation.first_done]
            history.warmups.add((step.stream, step.step))
    if not history.steps:
        history.steps = _last_known_steps(generations)
        history.is_outdated = bool(history.steps)
    history.add_up(history.steps)
    return history


def highest_peak(generation: Generation, generations: Sequence[Generation]) -> float | None:
    """Return the highest peak that the group or a later one knows of the same device.

    One of a CPU is measured and rises when the machine is less busy: all steps of a run are of the
    same one.
    """
    reference = generation.start
    if reference is None or reference.peak_flops is None:
        return None
    starts = [
        other_generation.start
        for other_generation in generations
        if other_generation.key >= generation.key
    ]
    return max(
        start.peak_flops
        for start in starts
        if start is not None
        and start.peak_flops is not None
        and (start.device, start.dtype) == (reference.device, reference.dtype)
    )


def whole(history: History, generations: Iterable[Generation]) -> WholeRun:
    """Return what the steps come to, without the first of each worker group."""
    parts: dict[str, list[StepEvent]] = {}
    for event in history.steps:
        if (event.stream, event.step) not in history.warmups:
            parts.setdefault(event.stream, []).append(event)
    groups = list(generations)
    rates = {
        group.start.stream: peak * group.start.num_workers
        for group in groups
        if group.start is not None and (peak := highest_peak(group, groups)) is not None
    }
    return WholeRun(parts, rates=rates)


def _last_known_steps(generations: Iterable[Generation]) -> list[StepEvent]:
    """Return the steps of all generations, as if no restart had removed any."""
    steps: list[StepEvent] = []
    for generation in generations:
        first = generation.first_done
        if first is not None:
            steps = [event for event in steps if event.step < first]
            steps += _without_undone(generation.steps.values(), ())
    return steps


def _without_undone(events: Iterable[T], restarts: Sequence[RestartEvent]) -> list[T]:
    """Return them in order of step, without those that a later restart of the attempt removed."""
    remaining = list(events)
    if restarts:
        remaining = [event for event in remaining if not any(_undoes(r, event) for r in restarts)]
    if any(a.step >= b.step for a, b in pairwise(remaining)):
        remaining.sort(key=lambda event: (event.step, *_order(event)))
    return remaining


def _order(event: Event) -> tuple[int, float, str]:
    """Order inside a worker group: it has one stream, so the sequence number decides."""
    return (event.seq, event.time_s, event.stream)


def _undoes(restart: RestartEvent, event: StepEvent | EvalEvent | CheckpointEvent) -> bool:
    return (
        event.attempt == restart.attempt
        and event.step > restart.from_step
        and event.time_s <= restart.time_s
    )


def extends(
    history: History, events: Sequence[StepEvent], restarts: Sequence[RestartEvent]
) -> bool:
    """Return True if these events of the newest group only continue `history`."""
    return (
        bool(history.steps)
        and not history.is_outdated
        and all(
            last.stream == event.stream
            and last.seq < event.seq
            and last.step < event.step
            and not any(_undoes(restart, event) for restart in restarts)
            for last, event in pairwise([history.steps[-1], *events])
        )
    )


def worker_group(stream: str) -> int:
    """Return 3 for `2-worker-3`; other streams belong to no worker group."""
    head, _, number = stream.rpartition("-")
    return int(number) if head.endswith("-worker") and number.isdigit() else 0


# --- Thinning: of each stretch the lowest and the highest of each number ---


TAIL = 64
"""So many of a worker group's last steps stay as they are: figures are read from them."""
FIELDS = tuple(
    name
    for name in StepEvent.model_fields
    if name not in ("stream", "seq", "time_s", "attempt", "kind", "step", "values", "stands_for")
)
_READ = attrgetter(*FIELDS)

Number = float | int | None


def stride_for(spans: Iterable[tuple[int, int]], *, max_rows: int) -> int:
    """Return how many steps make a stretch, a power of two, so that `max_rows` hold the spans.

    Stretches of a smaller power of two make whole ones of a larger, so what is thin can be thinned
    again with the same result.
    """
    least = 2 * sum(last - first + 1 for first, last in spans) / max(1, max_rows)
    return 1 << max(1, math.ceil(math.log2(max(least, 2))))


def thin(steps: Sequence[StepEvent], *, stride: int, edges: Sequence[int] = ()) -> list[StepEvent]:
    """Thin the steps of one worker group, given in order.

    The first step and the last `TAIL` stay. Of each stretch of `stride` steps there remain two,
    its first and its last, with the lowest and the highest value of each number in the order in
    which they came; and the first step whose loss is not finite. The first also has the sums over
    the stretch. No stretch goes over one of
    `edges`, steps in rising order that begin something new.
    """
    if len(steps) <= TAIL + 2:
        return list(steps)
    thinned = [steps[0]]
    inner = steps[1:-TAIL]
    for _, group in groupby(
        inner, lambda step: ((step.step - 1) // stride, bisect_right(edges, step.step))
    ):
        stretch = list(group)
        thinned += with_sums(_ends(stretch), stretch)
    return thinned + list(steps[-TAIL:])


def _ends(group: list[StepEvent]) -> list[StepEvent]:
    bad = next(
        (step for step in group if step.loss is not None and not math.isfinite(step.loss)), None
    )
    good = (
        group
        if bad is None
        else [step for step in group if step.loss is None or _finite(step.loss)]
    )
    if len(group) <= 2 or not good:
        return group if len(group) <= 2 else [group[0], group[-1]]
    first, last = good[0], good[-1]
    if first is last:
        return [step for step in group if step is first or step is bad]
    before, after = _numbers(group)
    ends = [first.model_copy(update=before), last.model_copy(update=after)]
    if bad is not None:
        ends = sorted([*ends, bad], key=attrgetter("step"))
    return ends


def _finite(value: float) -> bool:
    return math.isfinite(value)


def _numbers(group: Sequence[StepEvent]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all numbers of the stretch's first row and of its second one."""
    pairs = [_extremes(column) for column in zip(*map(_READ, group), strict=True)]
    before: dict[str, Any] = {name: pair[0] for name, pair in zip(FIELDS, pairs, strict=True)}
    after: dict[str, Any] = {name: pair[1] for name, pair in zip(FIELDS, pairs, strict=True)}
    before["values"], after["values"] = _values([step.values or {} for step in group])
    return before, after


def _values(
    all_values: list[dict[str, float]],
) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    names = list(all_values[0])
    columns: Iterable[Sequence[Number]]
    if all(list(values) == names for values in all_values):
        columns = zip(*(values.values() for values in all_values), strict=True)
    else:
        names = list(dict.fromkeys(name for values in all_values for name in values))
        columns = ([values.get(name) for values in all_values] for name in names)
    if not names:
        return None, None
    pairs = list(map(_extremes, columns))
    return (
        {name: pair[0] for name, pair in zip(names, pairs, strict=True)},
        {name: pair[1] for name, pair in zip(names, pairs, strict=True)},
    )


def _extremes(column: Sequence[Any]) -> tuple[Any, Any]:
    """Return the lowest and the highest in the order in which they came; (None, None) of nothing.

    Where no number is finite, it is the first one, twice.
    """
    try:
        usable = math.isfinite(sum(column))
    except TypeError:
        usable = False
    if not usable:
        numbers = [value for value in column if value is not None]
        column = [value for value in numbers if _finite(value)] or numbers[:1]
        if not column:
            return None, None
    low, high = min(column), max(column)
    return (low, high) if column.index(low) <= column.index(high) else (high, low)
