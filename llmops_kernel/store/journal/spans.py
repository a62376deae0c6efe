"""Phase spans of one attempt, paired from begin and end events of any stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmops_kernel.metrics.events import Event, PhaseEvent


@dataclass(frozen=True, kw_only=True)
class PhaseSpan:
    """One bar of the waterfall; times are Unix seconds."""

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
    """When an open phase was cut off: a restart stops only what the workers do."""
    if "-worker-" in begin.stream:
        later = [time_s for time_s in restarts_s if time_s >= begin.time_s]
        if later:
            return min(later)
    return None if ended_s is None else max(begin.time_s, ended_s)
