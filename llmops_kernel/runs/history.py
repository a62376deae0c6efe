"""Steps, evaluations and checkpoints as they stand after restarts and retries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    RestartEvent,
    StartEvent,
    StepEvent,
)

Key = tuple[int, int]
"""(attempt, worker group)."""


T = TypeVar("T", StepEvent, EvalEvent, CheckpointEvent)


@dataclass
class Generation:
    """What one worker group told."""

    key: Key
    starts: list[StartEvent] = field(default_factory=list)
    steps: dict[int, StepEvent] = field(default_factory=dict)
    evals: list[EvalEvent] = field(default_factory=list)
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    first_done: int | None = None
    """Number of its first step; kept here, so that nobody looks through all of them."""
    first_done_s: float | None = None
    """When it made its earliest step."""

    def add_steps(self, events: Sequence[StepEvent]) -> None:
        numbers = [event.step for event in events]
        first, first_s = min(numbers), min([event.time_s for event in events])
        self.first_done = first if self.first_done is None else min(self.first_done, first)
        self.first_done_s = (
            first_s if self.first_done_s is None else min(self.first_done_s, first_s)
        )
        fresh = dict(zip(numbers, events, strict=True))
        if len(fresh) == len(events) and self.steps.keys().isdisjoint(fresh):
            self.steps |= fresh
            return
        for event in events:
            known = self.steps.get(event.step)
            if known is None or _place(known) < _place(event):
                self.steps[event.step] = event

    @property
    def start(self) -> StartEvent | None:
        return max(self.starts, key=_place, default=None)

    @property
    def first_step(self) -> int | None:
        """The number its first step has or will have; None while nothing is known."""
        told = [start.first_step for start in self.starts]
        return min(told if self.first_done is None else [*told, self.first_done], default=None)


@dataclass
class History:
    """One event a step; what a newer worker group did again has replaced the older."""

    steps: list[StepEvent] = field(default_factory=list)
    evals: list[EvalEvent] = field(default_factory=list)
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    warmups: set[tuple[str, int]] = field(default_factory=set)
    """(stream, step) of each group's first step, which is slow and counts in no average."""
    loss: float | None = None
    """Of the last step that has one."""
    peak_memory_bytes: int | None = None

    def takes(self, event: EvalEvent | CheckpointEvent, restarts: Sequence[RestartEvent]) -> bool:
        """Add what the newest group told if it only goes on where this ends; else False."""
        kept: list[Any] = self.evals if isinstance(event, EvalEvent) else self.checkpoints
        if any(known.step >= event.step for known in kept):
            return False
        if any(_undoes(restart, event) for restart in restarts):
            return False
        kept.append(event)
        return True

    def extend(self, events: Sequence[StepEvent]) -> None:
        """Add steps that follow those that are here."""
        self.steps += events
        self.add_up(events)

    def add_up(self, events: Sequence[StepEvent]) -> None:
        """Keep the totals, so that nobody looks through all steps for them."""
        self.loss = next((e.loss for e in reversed(events) if e.loss is not None), self.loss)
        peaks = [e.peak_memory_bytes for e in events if e.peak_memory_bytes is not None]
        known = [] if self.peak_memory_bytes is None else [self.peak_memory_bytes]
        self.peak_memory_bytes = max(peaks + known, default=None)


def fold(generations: Iterable[Generation], restarts: Sequence[RestartEvent]) -> History:
    """Lay the generations over each other, oldest first.

    A newer group cuts off all from its first step on; a restart cuts off what its
    attempt had done after the checkpoint even before the new group has told anything.
    """
    history = History()
    for generation in sorted(generations, key=lambda generation: generation.key):
        first = generation.first_step
        if first is not None:
            history.steps = [event for event in history.steps if event.step < first]
            history.evals = [event for event in history.evals if event.step < first]
            history.checkpoints = [event for event in history.checkpoints if event.step < first]
        redone = {event.step for event in generation.evals}
        history.evals = [event for event in history.evals if event.step not in redone]
        history.steps += _standing(generation.steps.values(), restarts)
        history.evals += _standing(generation.evals, restarts)
        history.checkpoints += _standing(generation.checkpoints, restarts)
        if generation.first_done is not None:
            step = generation.steps[generation.first_done]
            history.warmups.add((step.stream, step.step))
    history.add_up(history.steps)
    return history


def _standing(events: Iterable[T], restarts: Sequence[RestartEvent]) -> list[T]:
    """In order of step, without those that a later restart of the attempt undid."""
    kept = list(events)
    if restarts:
        kept = [event for event in kept if not any(_undoes(r, event) for r in restarts)]
    if any(a.step >= b.step for a, b in pairwise(kept)):
        kept.sort(key=lambda event: (event.step, *_place(event)))
    return kept


def _place(event: Event) -> tuple[int, float, str]:
    """Order inside a worker group: it has one stream, so the number decides."""
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
    """True when these events of the newest group only go on where `history` ends."""
    return bool(history.steps) and all(
        last.stream == event.stream
        and last.seq < event.seq
        and last.step < event.step
        and not any(_undoes(restart, event) for restart in restarts)
        for last, event in pairwise([history.steps[-1], *events])
    )


def worker_group(stream: str) -> int:
    """`2-worker-3` -> 3; other streams belong to no worker group."""
    head, _, number = stream.rpartition("-")
    return int(number) if head.endswith("-worker") and number.isdigit() else 0
