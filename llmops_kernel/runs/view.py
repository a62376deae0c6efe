"""What a run looks like now: a pure fold of its journal, whatever order the events came in."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from statistics import median
from typing import Any, TypeVar

from llmops_kernel.metrics.events import (
    TERMINAL,
    AnyEvent,
    CheckpointEvent,
    EndEvent,
    EvalEvent,
    Event,
    FailureEvent,
    OutputEvent,
    PhaseEvent,
    ProcessEvent,
    RestartEvent,
    RunState,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.runs.history import Generation, History, Key, extends, fold, worker_group
from llmops_kernel.runs.spans import PhaseSpan, phase_spans, when
from llmops_kernel.runs.warmth import Warmth, warmth

RECENT_STEPS = 10
STOP_PHASE = "stop"
"""Whoever asks for a stop journals the begin of this phase: STOPPING until the end event."""

_BEFORE_DRIVER = frozenset({"snapshot", "upload", "pending", "runtime_env", STOP_PHASE})
_SUBMIT_PHASES = frozenset({"snapshot", "upload", "pending"})
_LOWER_IS_BETTER = ("loss", "perplexity", "error", "wer", "cer")
_FROM_WORKERS = (StartEvent, StepEvent, EvalEvent, CheckpointEvent)

E = TypeVar("E", bound=Event)
B = TypeVar("B", EvalEvent, CheckpointEvent)


class RunView:
    """Feed it events with `apply`, in any order and any number of times; read the fields.

    The same set of events gives the same view. An event seen before (same stream and
    sequence number) changes nothing.
    """

    def __init__(self, events: Iterable[AnyEvent] = ()) -> None:
        self._seen: dict[str, set[int]] = {}
        self._groups: dict[str, int] = {}
        self._generations: dict[Key, Generation] = {}
        self._others: dict[type[Event], list[Event]] = {}
        self._history: History | None = None
        self._spans: dict[int, list[PhaseSpan]] = {}
        self._last_s: dict[int, float] = {}
        self._driven: set[int] = set()
        self.attempt = 1
        """The newest attempt that has told anything."""
        self.apply(events)

    def apply(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """Returns those that were not seen before, in the order given."""
        fresh = self._unseen(events)
        # Whatever the order, the view comes out the same: the few others first, so that a long
        # journal's steps are laid down in one go.
        steps = [event for event in fresh if type(event) is StepEvent]
        for event in fresh if len(steps) < len(fresh) else ():
            if type(event) is not StepEvent:
                self._note(event, last_s=event.time_s)
                self._add(event)
        for _, group in groupby(steps, attrgetter("attempt", "stream")):
            batch = list(group)
            self._note(batch[0], last_s=max([event.time_s for event in batch]))
            self._add_steps(batch)
        return fresh

    def _unseen(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        fresh, stream = [], None
        seen: set[int] = set()
        for event in events:
            if event.stream != stream:
                stream = event.stream
                seen = self._seen.setdefault(stream, set())
            seq = event.seq
            if seq:  # An event that no writer numbered cannot be recognised again.
                if seq in seen:
                    continue
                seen.add(seq)
            fresh.append(event)
        return fresh

    def _note(self, event: AnyEvent, *, last_s: float) -> None:
        attempt = event.attempt
        if attempt > self.attempt:
            self.attempt = attempt
        if last_s > self._last_s.get(attempt, float("-inf")):
            self._last_s[attempt] = last_s
        if attempt < self.attempt:
            self._spans.clear()  # Its open phases last until its last word.
        if _shows_driver(event):
            self._driven.add(attempt)

    def _generation(self, event: Event) -> Generation:
        group = self._groups.get(event.stream)
        if group is None:
            group = self._groups[event.stream] = worker_group(event.stream)
        key = (event.attempt, group)
        generation = self._generations.get(key)
        if generation is None:
            generation = self._generations[key] = Generation(key)
            self._history = None
        return generation

    def _add_steps(self, events: list[StepEvent]) -> None:
        """Of one stream and attempt."""
        generation = self._generation(events[0])
        generation.add_steps(events)
        history = self._history
        # The usual case while following: some more steps, without folding all again.
        if (
            history is not None
            and generation.key == max(self._generations)
            and extends(history, events, self.restarts)
        ):
            history.extend(events)
        else:
            self._history = None

    def _add(self, event: AnyEvent) -> None:
        if isinstance(event, StartEvent):
            self._generation(event).starts.append(event)
        elif isinstance(event, EvalEvent):
            self._add_beside(event, among=self._generation(event).evals)
        elif isinstance(event, CheckpointEvent):
            self._add_beside(event, among=self._generation(event).checkpoints)
        else:
            insort(self._others.setdefault(type(event), []), event, key=when)
            self._spans.clear()
        if isinstance(event, StartEvent | RestartEvent):
            self._history = None

    def _add_beside(self, event: B, *, among: list[B]) -> None:
        """An evaluation or a checkpoint; of the newest group it mostly just comes last."""
        among.append(event)
        history = self._history
        is_newest = self._generation(event).key == max(self._generations)
        if history is not None and not (is_newest and history.takes(event, self.restarts)):
            self._history = None

    def _folded(self) -> History:
        if self._history is None:
            self._history = fold(self._generations.values(), self.restarts)
        return self._history

    def _of(self, kind: type[E]) -> list[E]:
        return [event for event in self._others.get(kind, ()) if isinstance(event, kind)]

    @property
    def steps(self) -> list[StepEvent]:
        """One a step number, in order; after a restart the newest wins. Do not change the list."""
        return self._folded().steps

    @property
    def evals(self) -> list[EvalEvent]:
        return self._folded().evals

    @property
    def checkpoints(self) -> list[CheckpointEvent]:
        return self._folded().checkpoints

    @property
    def warnings(self) -> list[WarningEvent]:
        """Of all attempts, by time; so are failures, restarts and outputs."""
        return self._of(WarningEvent)

    @property
    def failures(self) -> list[FailureEvent]:
        return self._of(FailureEvent)

    @property
    def restarts(self) -> list[RestartEvent]:
        return self._of(RestartEvent)

    @property
    def outputs(self) -> list[OutputEvent]:
        return self._of(OutputEvent)

    @property
    def start(self) -> StartEvent | None:
        """What the newest worker group told before its first step."""
        for key in sorted(self._generations, reverse=True):
            if self._generations[key].start is not None:
                return self._generations[key].start
        return None

    @property
    def end(self) -> EndEvent | None:
        """How the newest attempt ended; None while it has not."""
        return self.end_of(self.attempt)

    def end_of(self, attempt: int) -> EndEvent | None:
        """How one attempt ended; None when nobody saw it end."""
        ends = [event for event in self._of(EndEvent) if event.attempt == attempt]
        # An observer only infers the end; what the run itself tells is better.
        return max(
            ends, key=lambda event: ("-observer" not in event.stream, when(event)), default=None
        )

    @property
    def state(self) -> RunState:
        end = self.end
        if end is not None:
            return end.state
        if any(event.name == STOP_PHASE for event in self._phase_events(self.attempt)):
            return "STOPPING"
        return "RUNNING" if self.attempt in self._driven else "PENDING"

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def message(self) -> str:
        """Why the newest attempt ended; empty while it runs."""
        return self._told("message")

    @property
    def remedy(self) -> str:
        return self._told("remedy")

    def _told(self, what: str) -> str:
        end = self.end
        if end is None:
            return ""
        failures = [event for event in self.failures if event.attempt == self.attempt]
        text: str = getattr(end, what)
        if not text and end.state == "FAILED" and failures:
            text = getattr(failures[-1], what)
        return text

    def _phase_events(self, attempt: int) -> list[PhaseEvent]:
        return [event for event in self._of(PhaseEvent) if event.attempt == attempt]

    def phases(self, attempt: int | None = None) -> list[PhaseSpan]:
        """The waterfall of one attempt (default the newest), by begin time."""
        attempt = self.attempt if attempt is None else attempt
        if attempt not in self._spans:
            self._spans[attempt] = self._phases(attempt)
        return list(self._spans[attempt])

    def _phases(self, attempt: int) -> list[PhaseSpan]:
        end = self.end_of(attempt)
        ended_s = end.time_s if end is not None else None
        if ended_s is None and attempt < self.attempt:
            ended_s = self._last_s.get(
                attempt
            )  # Nobody saw it end; a newer attempt shows that it did.
        restarts_s = [event.time_s for event in self.restarts if event.attempt == attempt]
        return phase_spans(self._phase_events(attempt), restarts_s=restarts_s, ended_s=ended_s)

    @property
    def last_step(self) -> int | None:
        return self.steps[-1].step if self.steps else None

    @property
    def total_steps(self) -> int | None:
        return self.start.total_steps if self.start else None

    @property
    def progress(self) -> float | None:
        """0..1 of the steps; None until the number of steps is known."""
        start = self.start
        if start is None or start.total_steps <= 0:
            return None
        done = self.last_step if self.steps else start.first_step - 1
        return min(1.0, max(0.0, (done or 0) / start.total_steps))

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until the last step at the recent pace; None unless steps are being made."""
        total, step_time_s = self.total_steps, self.step_time_s
        if self.state != "RUNNING" or total is None or step_time_s is None:
            return None
        last = self.steps[-1]
        if last.step >= total:
            return None  # What is left (evaluation, saving) has no pace of its own.
        # At most one step is credited: a stalled run does not count down to zero.
        under_way_s = min(max(0.0, now_s - last.time_s), step_time_s)
        return max(0.0, (total - last.step) * step_time_s - under_way_s)

    def _recent(self, value: Callable[[StepEvent], float | None]) -> float | None:
        history = self._folded()
        window = history.steps[-RECENT_STEPS - 1 :]
        settled = [event for event in window if (event.stream, event.step) not in history.warmups]
        values = [number for event in settled if (number := value(event)) is not None]
        return median(values[-RECENT_STEPS:]) if values else None

    @property
    def step_time_s(self) -> float | None:
        """Median of the last 10 steps, a worker group's first left out; the next two alike."""
        return self._recent(lambda event: event.step_time_s)

    @property
    def tokens_per_second(self) -> float | None:
        return self._recent(lambda event: event.tokens_per_second)

    @property
    def mfu(self) -> float | None:
        return self._recent(lambda event: event.mfu)

    @property
    def loss(self) -> float | None:
        """Of the last step that has one."""
        return self._folded().loss

    @property
    def peak_memory_bytes(self) -> int | None:
        return self._folded().peak_memory_bytes

    @property
    def submit_to_first_step_s(self) -> float | None:
        """Of the newest attempt: from its first phase at the client to its first optimizer step."""
        begins = [e.time_s for e in self._phase_events(self.attempt) if e.name in _SUBMIT_PHASES]
        ends = [
            generation.first_done_s
            for (attempt, _), generation in self._generations.items()
            if attempt == self.attempt and generation.first_done_s is not None
        ]
        return max(0.0, min(ends) - min(begins)) if begins and ends else None

    @property
    def warmth(self) -> Warmth | None:
        """Of the newest attempt's processes; None until one has told."""
        return warmth([e for e in self._of(ProcessEvent) if e.attempt == self.attempt])

    @property
    def best_metrics(self) -> dict[str, float]:
        """Best value of each evaluation metric: lowest of losses and errors, else highest."""
        best: dict[str, float] = {}
        for event in self.evals:
            for name, value in event.metrics.items():
                if not math.isfinite(value):
                    continue
                pick = min if name.endswith(_LOWER_IS_BETTER) else max
                best[name] = pick(best.get(name, value), value)
        return best

    def summary(self) -> dict[str, Any]:
        """The view in JSON-able numbers and words, base units; unknown and NaN as None."""
        warmth = self.warmth
        return {
            "state": self.state,
            "attempt": self.attempt,
            "message": self.message,
            "remedy": self.remedy,
            "last_step": self.last_step,
            "total_steps": self.total_steps,
            "progress": self.progress,
            "loss": _finite(self.loss),
            "step_time_s": self.step_time_s,
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
            "peak_memory_bytes": self.peak_memory_bytes,
            "submit_to_first_step_s": self.submit_to_first_step_s,
            "warmth": None if warmth is None else asdict(warmth),
            "device": self.start.device if self.start else None,
            "best_metrics": self.best_metrics,
            "evals": [
                {"step": e.step, "metrics": {k: _finite(v) for k, v in e.metrics.items()}}
                for e in self.evals
            ],
            "checkpoint": self.checkpoints[-1].path if self.checkpoints else None,
            "outputs": [{"what": e.what, "path": e.path} for e in self.outputs],
            "phases": [
                {"name": s.name, "begin_s": s.begin_s, "end_s": s.end_s, "detail": s.detail}
                for s in self.phases()
            ],
            "num_warnings": len(self.warnings),
            "num_failures": len(self.failures),
            "num_restarts": len(self.restarts),
        }


def _finite(value: float | None) -> float | None:
    """JSON has no NaN."""
    return value if value is not None and math.isfinite(value) else None


def _shows_driver(event: AnyEvent) -> bool:
    if isinstance(event, PhaseEvent):
        return event.name not in _BEFORE_DRIVER
    return isinstance(event, (*_FROM_WORKERS, RestartEvent, OutputEvent))
