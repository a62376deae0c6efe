"""Phase spans of one attempt, paired from begin and end events of any stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from llmops_kernel.metrics.events import Event, PhaseEvent, ProcessEvent


@dataclass(frozen=True, kw_only=True)
class PhaseSpan:
    """A bar of the waterfall; times are Unix seconds."""

    name: str
    begin_s: float
    end_s: float | None = None
    """None while the phase runs."""
    detail: str = ""
    interrupted: bool = False
    """Its end was not reported: a restart or the end of the attempt cut it off at `end_s`."""

    @property
    def duration_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.begin_s


def phase_spans(
    events: Iterable[PhaseEvent], *, restarts_s: Sequence[float] = (), ended_s: float | None = None
) -> list[PhaseSpan]:
    """Pair the events of one attempt, by begin time.

    A begin pairs with an end of the same stream first, so that a phase which a dead
    worker left open does not take the end of its successor; the others pair
    across streams ("pending" begins at the client and ends at the driver).
    """
    by_name: dict[str, list[PhaseEvent]] = defaultdict(list)
    for event in events:
        by_name[event.name].append(event)
    spans = [
        _span(begin, end, restarts_s=restarts_s, ended_s=ended_s)
        for group in by_name.values()
        for begin, end in _pairs(group)
    ]
    return sorted(spans, key=lambda span: (span.begin_s, span.name, span.end_s or float("inf")))


def _pairs(events: list[PhaseEvent]) -> list[tuple[PhaseEvent, PhaseEvent | None]]:
    streams: dict[str, list[PhaseEvent]] = defaultdict(list)
    for event in events:
        streams[event.stream].append(event)
    pairs: list[tuple[PhaseEvent, PhaseEvent | None]] = []
    begins: list[PhaseEvent] = []
    ends: list[PhaseEvent] = []
    for group in streams.values():
        _pair_in_stream(group, pairs=pairs, begins=begins, ends=ends)
    begins.sort(key=when)
    ends.sort(key=when)
    for i, begin in enumerate(begins):
        pairs.append((begin, ends[i] if i < len(ends) else None))
    return pairs


def _pair_in_stream(
    events: list[PhaseEvent],
    *,
    pairs: list[tuple[PhaseEvent, PhaseEvent | None]],
    begins: list[PhaseEvent],
    ends: list[PhaseEvent],
) -> None:
    open_: list[PhaseEvent] = []
    for event in sorted(events, key=lambda event: (event.seq, event.time_s)):
        if event.state == "begin":
            open_.append(event)
        elif open_:
            pairs.append((open_.pop(), event))
        else:
            ends.append(event)
    begins.extend(open_)


def when(event: Event) -> tuple[float, str, int]:
    """Sort key for events of any streams."""
    return (event.time_s, event.stream, event.seq)


def _span(
    begin: PhaseEvent,
    end: PhaseEvent | None,
    *,
    restarts_s: Sequence[float],
    ended_s: float | None,
) -> PhaseSpan:
    if end is not None:
        return PhaseSpan(
            name=begin.name,
            begin_s=begin.time_s,
            # Two hosts' clocks may disagree; a span is never negative.
            end_s=max(begin.time_s, end.time_s),
            detail=end.detail or begin.detail,
        )
    cut_s = _cut_off(begin, restarts_s=restarts_s, ended_s=ended_s)
    return PhaseSpan(
        name=begin.name,
        begin_s=begin.time_s,
        end_s=cut_s,
        detail=begin.detail,
        interrupted=cut_s is not None,
    )


def _cut_off(
    begin: PhaseEvent, *, restarts_s: Sequence[float], ended_s: float | None
) -> float | None:
    """Return when an open phase was cut off: a restart stops only what the workers do."""
    if "-worker-" in begin.stream:
        later = [time_s for time_s in restarts_s if time_s >= begin.time_s]
        if later:
            return min(later)
    return None if ended_s is None else max(begin.time_s, ended_s)


# --- Warm and cold starts of a run's processes ---


_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Warmth:
    """Start of the driver and of the newest worker group of an attempt: warm, cold, and why."""

    warm: int
    cold: int
    reasons: tuple[str, ...] = ()
    """Why processes started cold, each text once."""
    private_bytes: tuple[int | None, ...] | None = None
    """Unique set size of each worker after its first step, by rank; None before that."""
    text: str
    """Readable text: `warm`, `cold: why`, `2 warm, 1 cold (rank 1): why`."""

    @property
    def short(self) -> str:
        """Return `warm`, `cold`, or `2 warm, 1 cold`."""
        return _short(self.warm, self.cold)


def warmth(events: Sequence[ProcessEvent]) -> Warmth | None:
    """Fold one attempt's events, given by time; None when no process has reported."""
    newest = max((_group(event) for event in events), default=0)
    by_rank: dict[int, ProcessEvent] = {}
    for event in events:
        rank = -1 if event.rank is None else event.rank
        if event.role == "worker" and _group(event) not in (0, newest):
            continue  # Of workers that a restart has replaced.
        before = by_rank.get(rank)
        if before is None or before.private_bytes is None or event.private_bytes is not None:
            by_rank[rank] = event
    if not by_rank:
        return None
    newest_events = [by_rank[rank] for rank in sorted(by_rank)]
    cold = [event for event in newest_events if not event.warm]
    sizes = tuple(event.private_bytes for event in newest_events if event.role == "worker")
    return Warmth(
        warm=len(newest_events) - len(cold),
        cold=len(cold),
        reasons=tuple(dict.fromkeys(event.reason for event in cold)),
        private_bytes=sizes if any(size is not None for size in sizes) else None,
        text=_text(len(newest_events) - len(cold), cold),
    )


def _group(event: ProcessEvent) -> int:
    """Return 3 for `2-worker-3`; a driver's report is about the newest workers: 0."""
    head, _, number = event.stream.rpartition("-")
    return int(number) if head.endswith("-worker") and number.isdigit() else 0


def _short(warm: int, cold: int) -> str:
    if not warm or not cold:
        return "cold" if cold else "warm"
    return f"{warm} warm, {cold} cold"


def _text(warm: int, cold: list[ProcessEvent]) -> str:
    groups = [
        (reason or "no reason was reported", list(group))
        for reason, group in groupby(sorted(cold, key=_reason), key=_reason)
    ]
    if not warm and len(groups) == 1:
        return f"cold: {groups[0][0]}"
    parts = [f"{len(group)} cold ({_process_names(group)}): {reason}" for reason, group in groups]
    parts_of_count = [f"{warm} warm"] if warm and cold else ["warm"] if warm else []
    return ", ".join([*parts_of_count, "; ".join(parts)] if parts else parts_of_count)


def _reason(event: ProcessEvent) -> str:
    return event.reason


def _process_names(events: list[ProcessEvent]) -> str:
    names = ["driver" if event.rank is None else f"rank {event.rank}" for event in events]
    num_more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {num_more} more" if num_more > 0 else "")
