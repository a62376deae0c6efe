"""Steps, evaluations and checkpoints as they stand after restarts and retries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

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

    def add_step(self, event: StepEvent) -> None:
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
        return min([*told, *self.steps], default=None)


@dataclass
class History:
    """One event a step; what a newer worker group did again has replaced the older."""

    steps: list[StepEvent] = field(default_factory=list)
    evals: list[EvalEvent] = field(default_factory=list)
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    warmups: set[tuple[str, int]] = field(default_factory=set)
    """(stream, step) of each group's first step, which is slow and counts in no average."""


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
        if generation.steps:
            step = generation.steps[min(generation.steps)]
            history.warmups.add((step.stream, step.step))
    return history


def _standing(events: Iterable[T], restarts: Sequence[RestartEvent]) -> list[T]:
    """In order of step, without those that a later restart of the attempt undid."""
    kept = [event for event in events if not any(_undoes(r, event) for r in restarts)]
    return sorted(kept, key=lambda event: (event.step, *_place(event)))


def _place(event: Event) -> tuple[int, float, str]:
    """Order inside a worker group: it has one stream, so the number decides."""
    return (event.seq, event.time_s, event.stream)


def _undoes(restart: RestartEvent, event: StepEvent | EvalEvent | CheckpointEvent) -> bool:
    return (
        event.attempt == restart.attempt
        and event.step > restart.from_step
        and event.time_s <= restart.time_s
    )


def extends(history: History, event: StepEvent, restarts: Sequence[RestartEvent]) -> bool:
    """True when the event of the newest group only goes on where `history` ends."""
    last = history.steps[-1] if history.steps else None
    return (
        last is not None
        and last.stream == event.stream
        and last.seq < event.seq
        and last.step < event.step
        and not any(_undoes(restart, event) for restart in restarts)
    )
