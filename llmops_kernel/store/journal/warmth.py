"""Which of a run's processes were forked warm, which started cold, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from llmops_kernel.metrics.events import ProcessEvent

_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Warmth:
    """How the driver and the newest worker group of one attempt were started."""

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
        """`warm`, `cold`, or `2 warm, 1 cold`."""
        return _short(self.warm, self.cold)


def warmth(events: Sequence[ProcessEvent]) -> Warmth | None:
    """Fold one attempt's events, given by time; None when no process has reported."""
    newest = max((_group(event) for event in events), default=0)
    known: dict[int, ProcessEvent] = {}
    for event in events:
        rank = -1 if event.rank is None else event.rank
        if event.role == "worker" and _group(event) not in (0, newest):
            continue  # Of workers that a restart has replaced.
        before = known.get(rank)
        if before is None or before.private_bytes is None or event.private_bytes is not None:
            known[rank] = event
    if not known:
        return None
    newest_events = [known[rank] for rank in sorted(known)]
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
    parts = [f"{len(group)} cold ({_who(group)}): {reason}" for reason, group in groups]
    counted = [f"{warm} warm"] if warm and cold else ["warm"] if warm else []
    return ", ".join([*counted, "; ".join(parts)] if parts else counted)


def _reason(event: ProcessEvent) -> str:
    return event.reason


def _who(events: list[ProcessEvent]) -> str:
    names = ["driver" if event.rank is None else f"rank {event.rank}" for event in events]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
