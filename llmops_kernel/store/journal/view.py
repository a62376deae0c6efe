"""The current state of a run of any kind: a pure fold of its journal, in any order of events."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from llmops_kernel.metrics import profile
from llmops_kernel.metrics.cost import Cost, cost_so_far, energy_cost
from llmops_kernel.metrics.events import (
    TERMINAL,
    AnswerEvent,
    AnyEvent,
    CheckpointEvent,
    EndEvent,
    EvalEvent,
    Event,
    FailureEvent,
    HoldEvent,
    InputsEvent,
    OutputEvent,
    PhaseEvent,
    ProcessEvent,
    ProfileEvent,
    ProgressEvent,
    QueueEvent,
    RestartEvent,
    RunState,
    StallEvent,
    StartEvent,
    StepEvent,
    SystemEvent,
    TrackerEvent,
    WarningEvent,
)
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.store.journal.journal import FolderTail, SeenNumbers, merge
from llmops_kernel.store.journal.spans import PhaseSpan, Warmth, phase_spans, warmth, when
from llmops_kernel.store.journal.whole_run import TimeLeft

STOP_PHASE = "stop"
"""A stop request journals the begin of this phase: STOPPING until the end event."""
SUBMIT_PHASES = frozenset({"snapshot", "upload", "pending"})

_BEFORE_DRIVER = SUBMIT_PHASES | {"runtime_env", STOP_PHASE, profile.REQUEST_PHASE}
_FROM_CLIENTS = ("-client", "-observer")
"""Ends of the streams that do not come from the run's own processes."""
_FROM_DRIVER = (
    StartEvent,
    StepEvent,
    EvalEvent,
    CheckpointEvent,
    ProgressEvent,
    RestartEvent,
    OutputEvent,
    AnswerEvent,
)
_QUEUE_FIELDS = ("reason", "place", "length")

MAX_CELLS = 2_000_000
"""Numbers that a view may hold: 110,000 rows of a usual run, 9,000 of one with 200 metrics."""
FEW_CELLS = 5_000
"""Limit for readers that show figures and a small curve: a list of runs follows many."""
_PART_BYTES = 16 * 2**20
"""So much of a journal is in memory at a time."""

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class Progress:
    """Progress of a run, in a unit of its kind."""

    done: int
    total: int | None = None
    """None while unknown."""
    unit: str = "steps"

    @property
    def fraction(self) -> float | None:
        """Return the progress as 0..1; None while the total is unknown."""
        if not self.total or self.total < 0:
            return None
        return min(1.0, max(0.0, self.done / self.total))


class RunView:
    """Pass it events with `apply`, in any order and any number of times; read the properties.

    The same set of events gives the same view. An event seen before (same stream and
    sequence number) changes nothing.
    """

    def __init__(self, events: Iterable[AnyEvent] = (), *, kind: str = "") -> None:
        self.kind = kind
        """The run's kind, by which screens choose its figures and words."""
        self._seen: dict[str, SeenNumbers] = {}
        self._events: dict[type[Event], list[Event]] = {}
        self._spans: dict[int, list[PhaseSpan]] = {}
        self._last_s: dict[int, float] = {}
        self._driven: set[int] = set()
        self._own_last_s: dict[int, float] = {}
        self.attempt = 1
        """The newest attempt that has reported anything."""
        self.cluster_says = ""
        """What its cluster reports of its fork server, by whoever watches both: of no event."""
        self.apply(events)

    def apply(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """Return the events that were not seen before, in the order given."""
        unseen = self._unseen(events)
        self._take(unseen)
        return unseen

    def _unseen(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        unseen, stream = [], None
        numbers = SeenNumbers()
        for event in events:
            if event.stream != stream:
                stream = event.stream
                numbers = self._seen.setdefault(stream, SeenNumbers())
            # An event without a number cannot be recognised when it comes again.
            if not event.seq or numbers.add(event.seq):
                unseen.append(event)
        return unseen

    def _take(self, events: Sequence[AnyEvent]) -> None:
        """Add events that were not seen before."""
        for event in events:
            self._note(event, last_s=event.time_s)
            self._add(event)

    def _note(self, event: AnyEvent, *, last_s: float) -> None:
        """Keep which attempt reported when."""
        attempt = event.attempt
        if attempt > self.attempt:
            self.attempt = attempt
        if last_s > self._last_s.get(attempt, float("-inf")):
            self._last_s[attempt] = last_s
        if not _is_from_client(event):
            self._own_last_s[attempt] = max(last_s, self._own_last_s.get(attempt, last_s))
        if attempt < self.attempt:
            self._spans.clear()  # Open phases of an old attempt end with its last event.
        if _is_from_driver(event):
            self._driven.add(attempt)

    def _add(self, event: AnyEvent) -> None:
        insort(self._events.setdefault(type(event), []), event, key=when)
        self._spans.clear()

    def _of(self, kind: type[E]) -> list[E]:
        return [event for event in self._events.get(kind, ()) if isinstance(event, kind)]

    @property
    def warnings(self) -> list[WarningEvent]:
        """Return all attempts' warnings, by time; failures, restarts and outputs are alike."""
        return self._of(WarningEvent)

    @property
    def failures(self) -> list[FailureEvent]:
        return self._of(FailureEvent)

    @property
    def restarts(self) -> list[RestartEvent]:
        return self._of(RestartEvent)

    @property
    def profiles(self) -> list[ProfileEvent]:
        return self._of(ProfileEvent)

    @property
    def profiling(self) -> PhaseEvent | None:
        """Return the begin of the profile under way, else the request for one; None: neither."""
        if self.is_terminal:
            return None
        phases = self._phase_events(self.attempt)
        begun = [e for e in phases if e.name == profile.PHASE]
        is_cut = begun and any(e.time_s >= begun[-1].time_s for e in self.restarts)
        if not begun or begun[-1].state != "begin" or is_cut:
            begun = [e for e in phases if e.name == profile.REQUEST_PHASE]
            # One end may be of two requests; and a client's clock may be ahead of the cluster's.
            num_ends = sum(event.state == "end" for event in begun)
            if not begun or begun[-1].state != "begin" or 2 * num_ends >= len(begun):
                return None
        return begun[-1]

    @property
    def outputs(self) -> list[OutputEvent]:
        return self._of(OutputEvent)

    @property
    def inputs(self) -> RunInputs | None:
        """Return what the newest worker group has computed with; None where nobody has said."""
        return next((event.inputs for event in reversed(self._of(InputsEvent))), None)

    @property
    def trackers(self) -> list[TrackerEvent]:
        """Return where the trackers of `report_to` have the run, the newest of each, by name.

        Without a `url` that is not of the web: one of a journal from elsewhere could run code.
        """
        newest = {event.name: event for event in self._of(TrackerEvent)}
        return [
            event
            if event.url.startswith(("http://", "https://"))
            else event.model_copy(update={"url": ""})
            for _, event in sorted(newest.items())
        ]

    @property
    def checkpoints(self) -> list[CheckpointEvent]:
        """Return the checkpoints by time; a retry resumes from the last one."""
        return self._of(CheckpointEvent)

    @property
    def evaluations(self) -> list[EvalEvent]:
        """Return the reports with metrics or samples, by time."""
        return self._of(EvalEvent)

    @property
    def sampled(self) -> EvalEvent | None:
        """Return the newest report with samples; None before there is one."""
        return next(
            (evaluation for evaluation in reversed(self.evaluations) if evaluation.samples), None
        )

    @property
    def members(self) -> dict[str, dict[str, float]]:
        """Return the newest numbers of each member of the newest attempt; empty without members."""
        reported = (e for e in reversed(self._of(ProgressEvent)) if e.attempt == self.attempt)
        return next((evaluation.members for evaluation in reported if evaluation.members), {})

    @property
    def end(self) -> EndEvent | None:
        """Return how the newest attempt ended; None while it runs."""
        return self.end_of(self.attempt)

    def end_of(self, attempt: int) -> EndEvent | None:
        """Return how an attempt ended; None while no end was reported."""
        ends = [event for event in self._of(EndEvent) if event.attempt == attempt]
        # An observer only infers the end; what the run itself reported takes precedence.
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
        if self.queue is not None:
            return "QUEUED"
        if self.restarting is not None:
            return "RESTARTING"
        return "RUNNING" if self.has_begun else "PENDING"

    @property
    def queue(self) -> QueueEvent | None:
        """Return what the newest attempt waits for; None unless Ray lacks resources for it."""
        reported = [event for event in self._of(QueueEvent) if event.attempt == self.attempt]
        return reported[-1] if reported and reported[-1].state == "begin" else None

    @property
    def restarting(self) -> RestartEvent | None:
        """Return the restart that has not led to a new worker group yet, if there is one."""
        return None

    @property
    def has_begun(self) -> bool:
        """Return True once the newest attempt's driver has reported anything."""
        return self.attempt in self._driven

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def message(self) -> str:
        """Return why the newest attempt ended; empty while it runs."""
        return self._from_end("message")

    @property
    def remedy(self) -> str:
        return self._from_end("remedy")

    def _from_end(self, name: str) -> str:
        end = self.end
        if end is None:
            return ""
        failures = [event for event in self.failures if event.attempt == self.attempt]
        text: str = getattr(end, name)
        if not text and end.state == "FAILED" and failures:
            text = getattr(failures[-1], name)
        return text

    def _phase_events(self, attempt: int) -> list[PhaseEvent]:
        return [event for event in self._of(PhaseEvent) if event.attempt == attempt]

    def phases(self, attempt: int | None = None) -> list[PhaseSpan]:
        """Return the waterfall of one attempt (default the newest), by begin time."""
        attempt = self.attempt if attempt is None else attempt
        if attempt not in self._spans:
            self._spans[attempt] = self._phases(attempt)
        return list(self._spans[attempt])

    def _phases(self, attempt: int) -> list[PhaseSpan]:
        end = self.end_of(attempt)
        ended_s = end.time_s if end is not None else None
        if ended_s is None and attempt < self.attempt:
            # Its end was not reported; a newer attempt shows that it ended.
            ended_s = self._last_s.get(attempt)
        restarts_s = [event.time_s for event in self.restarts if event.attempt == attempt]
        events = [e for e in self._phase_events(attempt) if e.name != profile.REQUEST_PHASE]
        return phase_spans(events, restarts_s=restarts_s, ended_s=ended_s)

    @property
    def rows(self) -> Sequence[Event]:
        """Return one event per row of the chart columns, in order; do not change it."""
        return self._of(ProgressEvent)

    @property
    def stride(self) -> int:
        """Return how many steps two rows stand for at most, by their extremes; 1: no thinning."""
        return 1

    def thin(self, *, max_cells: int) -> bool:
        """Keep fewer rows if they have more numbers than that; return whether any was left out."""
        return False

    @property
    def progress(self) -> Progress | None:
        """Return the progress; None until the run has reported any."""
        reported = self._of(ProgressEvent)
        if not reported:
            return None
        return Progress(reported[-1].done, reported[-1].total, reported[-1].unit)

    @property
    def counted(self) -> ProgressEvent | None:
        """Return the progress of the phase under way, where it is not that of the run itself."""
        return None

    @property
    def last_step(self) -> int | None:
        """Return how many steps (or other units) are done; None before the first report."""
        return self.progress.done if self.progress else None

    @property
    def reported_by(self) -> int | None:
        """Return the attempt of the shown progress; a new one reports nothing at first."""
        rows = self.rows
        return rows[-1].attempt if rows else None

    @property
    def is_outdated(self) -> bool:
        """Return True if the progress is from an earlier attempt or from before a restart."""
        reported_by = self.reported_by
        return reported_by is not None and reported_by < self.attempt

    def time_left(self, now_s: float) -> TimeLeft | None:
        """Return how long the run still takes at the recent pace; None for an unknown pace."""
        return None

    def eta_s(self, now_s: float) -> float | None:
        """Return seconds of `time_left`, whether or not they are all."""
        left = self.time_left(now_s)
        return None if left is None else left.seconds

    @property
    def submit_to_first_step_s(self) -> float | None:
        """Return the seconds from submit to the newest attempt's first step; None without steps."""
        return None

    @property
    def cost(self) -> Cost:
        """Return what the run has cost up to now, all attempts together."""
        ends = {e.attempt: e.time_s for e in self._of(EndEvent) if not _is_from_client(e)}
        return cost_so_far(self._of(HoldEvent), until_s=self._own_last_s | ends)

    @property
    def system(self) -> list[SystemEvent]:
        """Return the measurements of hosts and workers, of all attempts, by time."""
        return self._of(SystemEvent)

    @property
    def energy_j(self) -> float | None:
        """Return the joules that GPUs have used, attempts together; None where none has said.

        Up to the newest sample, and without the time before the first one of each attempt.
        """
        by_attempt = {e.attempt: e.energy_j for e in self.system if e.energy_j is not None}
        return sum(by_attempt.values()) if by_attempt else None

    @property
    def energy_cost(self) -> Cost:
        """Return what that energy costs, which `cost` may contain or not."""
        return energy_cost(self._of(HoldEvent), self.energy_j)

    @property
    def stall(self) -> StallEvent | None:
        """Return where the workers stand while no step ends; None while steps do."""
        if self.is_terminal:
            return None
        reported = [event for event in self._of(StallEvent) if event.attempt == self.attempt]
        restarts_s = [event.time_s for event in self.restarts]
        newest = reported[-1] if reported else None
        is_open = newest is not None and newest.state == "begin"
        if newest is None or not is_open or max(restarts_s, default=0.0) > newest.time_s:
            return None
        return newest

    @property
    def stalls(self) -> list[StallEvent]:
        """Return all times at which the workers were looked at since no step ended."""
        return [event for event in self._of(StallEvent) if event.state == "begin"]

    @property
    def warmth(self) -> Warmth | None:
        """Return how the newest attempt's processes were started; None until one has reported."""
        return warmth([e for e in self._of(ProcessEvent) if e.attempt == self.attempt])

    def summary(self) -> dict[str, Any]:
        """Return the view as JSON-able numbers and words, base units; unknown and NaN as None."""
        warmth, queue, stall = self.warmth, self.queue, self.stall
        system = self.system[-1:]
        return {
            "state": self.state,
            "attempt": self.attempt,
            "queue": None if queue is None else {n: getattr(queue, n) for n in _QUEUE_FIELDS},
            "message": self.message,
            "remedy": self.remedy,
            "progress": None if self.progress is None else asdict(self.progress),
            "cost": asdict(self.cost),
            "energy_j": self.energy_j,
            "energy_cost": asdict(self.energy_cost),
            "system": system[0].model_dump(mode="json") if system else None,
            "stall": None if stall is None else stall.model_dump(mode="json"),
            "warmth": None if warmth is None else asdict(warmth),
            "checkpoint": self.checkpoints[-1].path if self.checkpoints else None,
            "outputs": [{"what": e.what, "path": e.path} for e in self.outputs],
            "trackers": {e.name: e.url or e.path for e in self.trackers},
            "phases": [
                {"name": s.name, "begin_s": s.begin_s, "end_s": s.end_s, "detail": s.detail}
                for s in self.phases()
            ],
            "num_warnings": len(self.warnings),
            "num_failures": len(self.failures),
            "num_restarts": len(self.restarts),
        }


def read_thinned(
    tail: FolderTail,
    view: RunView,
    *,
    max_cells: int,
    arrived: Sequence[AnyEvent] = (),
    part_bytes: int = _PART_BYTES,
) -> list[AnyEvent]:
    """Apply what is new in a journal, also events that came on another way, in bounded memory.

    Return the new events; of more than `part_bytes`, those of the last part.
    """
    events = view.apply(merge([arrived, tail.read(part_bytes)]))
    view.thin(max_cells=max_cells)
    while tail.is_behind:
        events = view.apply(tail.read(part_bytes)) or events
        view.thin(max_cells=max_cells)
    return events


def finite(value: float | None) -> float | None:
    """Return the number, or None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _is_from_client(event: Event) -> bool:
    return event.stream.endswith(_FROM_CLIENTS)


def _is_from_driver(event: AnyEvent) -> bool:
    if isinstance(event, PhaseEvent):
        return event.name not in _BEFORE_DRIVER
    return isinstance(event, _FROM_DRIVER)
