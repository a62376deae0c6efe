"""Sends a run's journal to a tracker: each step once, whatever is killed meanwhile.

What is about to be sent is written down first, what was sent behind it (`Places`): after a kill at
any moment the next process sends the batch in doubt once more in the same order, and the tracker's
class leaves out what is there already. So no step is lost, and none is there twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from llmops_kernel.errors import LLMOpsError, TrackerError
from llmops_kernel.metrics.events import (
    AnyEvent,
    EndEvent,
    Event,
    HoldEvent,
    TrackerEvent,
    WarningEvent,
)
from llmops_kernel.store.files import private_folder
from llmops_kernel.store.journal.journal import StreamTail
from llmops_kernel.trackers.rows import Row, Rows
from llmops_kernel.trackers.tracker import TrackedRun, Tracker, make, redacted

AFTER_END_S = 60.0
"""Seconds that trackers get after the driver has ended, more of them on a busy machine; the rest is
for `llmops report`."""
_READ_BYTES = 128 * 1024


# --- What was sent ---


@dataclass(frozen=True)
class Batch:
    """Events that are sent together: of each stream up to a sequence number."""

    upto: Mapping[str, int]
    rows: int
    """Rows with a place, of this batch and those before it."""


class Places:
    """How far a tracker is, as lines of a file: each begins or confirms a batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.id = self.url = self.mark = ""
        self.batches: list[Batch] = []
        self.num_sent = 0
        """Batches that the tracker has confirmed; at most one more was begun."""
        data = path.read_bytes() if path.exists() else b""
        self._is_broken = bool(data) and not data.endswith(b"\n")
        for line in data.splitlines():
            with suppress(ValueError):  # The half line of a killed writer.
                self._take(json.loads(line))

    def _take(self, line: dict[str, object]) -> None:
        match line:
            case {"id": str(run), "url": str(url)}:
                self.id, self.url = run, url
            case {"upto": dict(upto), "rows": int(rows)}:
                self.batches.append(Batch(upto, rows))
            case {"sent": int(sent), "mark": str(mark)}:
                self.num_sent, self.mark = sent, mark

    def write(self, **line: object) -> None:
        """Append a line, whole or not at all for the next reader. Raises OSError."""
        text = json.dumps(line, separators=(",", ":")) + "\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(b"\n" * self._is_broken + text.encode())
        self._is_broken = False
        self._take(line)

    def rows_before(self, number: int) -> int:
        return self.batches[number - 1].rows if number else 0

    def continue_from(self, rows: int | None) -> int:
        """Return the first batch to send; `rows`: what the tracker has, if it knows that."""
        if rows is None:
            return self.num_sent
        return sum(batch.rows <= rows for batch in self.batches[: self.num_sent])


class Feed:
    """The events of a journal in batches; the same bounds give the same rows again."""

    def __init__(self, journal: Path, *, kind: str) -> None:
        self._journal = journal
        self._tails: dict[str, StreamTail] = {}
        self._pending: dict[str, deque[AnyEvent]] = {}
        self._last_read: dict[str, int] = {}
        self._rows = Rows(kind)
        self._attempt = 0
        self._nodes: set[str] = set()
        self.end: EndEvent | None = None
        """The end of the newest attempt, once its batch was taken; None while it runs."""

    def next_bounds(self) -> dict[str, int]:
        """Read what is new; return the bounds of a new batch, empty for nothing new.

        Events come by time, also from a long journal of which a part is read.
        """
        for path in sorted(self._journal.glob("*.jsonl")):
            self._tail(path.stem)
        waiting: dict[str, deque[AnyEvent]] = {}
        for stream, pending in self._pending.items():
            if pending or self._read_more(stream):
                waiting[stream] = pending
        behind = [events[-1].time_s for s, events in waiting.items() if self._tail(s).is_behind]
        horizon = min(behind, default=float("inf"))
        bounds: dict[str, int] = {}
        for stream, events in waiting.items():
            for event in events:
                if event.time_s > horizon:
                    break
                bounds[stream] = event.seq
        return bounds or {stream: events[-1].seq for stream, events in waiting.items()}

    def take(self, upto: Mapping[str, int]) -> list[Row]:
        """Return the rows of the events up to these bounds that were not taken before."""
        events: list[AnyEvent] = []
        for stream, seq in upto.items():
            while self._last_read.get(stream, 0) < seq and self._read_more(stream):
                pass
            pending = self._pending.get(stream) or deque()
            while pending and pending[0].seq <= seq:
                events.append(pending.popleft())
        events.sort(key=lambda event: (event.time_s, event.stream, event.seq))
        for event in events:
            if event.attempt > self._attempt:
                self._attempt, self.end = event.attempt, None
            if isinstance(event, HoldEvent):
                self._nodes.add(event.node)
            if isinstance(event, EndEvent) and event.attempt == self._attempt:
                self.end = event
        return [row for event in events if (row := self._rows.of(event)) is not None]

    @property
    def lacks_workers(self) -> bool:
        """Whether the run was on several nodes, and no worker's stream is here."""
        return len(self._nodes) > 1 and not any("-worker-" in stream for stream in self._tails)

    def _tail(self, stream: str) -> StreamTail:
        if stream not in self._tails:
            self._tails[stream] = StreamTail(self._journal / f"{stream}.jsonl")
            self._pending[stream] = deque()
        return self._tails[stream]

    def _read_more(self, stream: str) -> bool:
        """Read a bounded part of a stream; return whether there was anything new."""
        last = before = self._last_read.get(stream, 0)
        for event in self._tail(stream).read(_READ_BYTES):
            if event.seq > last:  # Else the file was replaced, and is read once more.
                last = event.seq
                self._pending[stream].append(event)
        self._last_read[stream] = last
        return last > before


# --- One tracker ---


class Forwarder:
    """Sends one run to one tracker; `advance` may be called again after any exception."""

    def __init__(
        self,
        name: str,
        run: TrackedRun,
        journal: Path,
        *,
        emit: Callable[[Event], object],
        make: Callable[[str], Tracker] = make,
    ) -> None:
        self.name = name
        self._run, self._journal = run, journal
        self._emit, self._make = emit, make
        self._tracker: Tracker | None = None
        self._places: Places
        self._feed: Feed
        self._number = self._skip = 0
        self._is_again = False
        self.sent_rows = 0

    @property
    def lacks_workers(self) -> bool:
        return self._tracker is not None and self._feed.lacks_workers

    @property
    def state(self) -> str:
        """How the newest attempt ended, as far as was sent; empty while it runs."""
        return "" if self._tracker is None or not self._feed.end else self._feed.end.state

    def advance(self) -> bool:
        """Send one batch; return False for nothing to send. Raises what the client does."""
        try:
            if self._tracker is None:
                self._open()
            return self._send()
        except BaseException:
            self._tracker = None
            raise

    def _warn(self, what: str) -> None:
        self._emit(WarningEvent(message=redacted(f"{self.name}: {what}")))

    def close(self, state: str) -> None:
        """End the tracker's session; with a state, the run there. Raises what the client does."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            mark = tracker.close(state)
            self._places.write(sent=self._number, mark=mark or self._places.mark)

    def _open(self) -> None:
        private_folder(self._run.folder)
        self._places = places = Places(self._run.folder / f"{self.name}.state")
        self._feed = Feed(self._journal, kind=self._run.kind)
        tracker = self._make(self.name)
        link = tracker.open(self._run, known=places.id, mark=places.mark, warn=self._warn)
        if (places.id, places.url) != (link.id, link.url):
            self._emit(TrackerEvent(name=self.name, url=_page(link.url), path=redacted(link.path)))
            places.write(id=link.id, url=link.url)
        self._number = places.continue_from(link.rows)
        for batch in places.batches[: self._number]:
            self._feed.take(batch.upto)
        before = places.rows_before(self._number)
        self._skip = 0 if link.rows is None else max(0, link.rows - before)
        is_asked = link.rows is None
        self._is_again = is_asked and (self._number < len(places.batches) or not link.is_new)
        self._tracker = tracker

    def _send(self) -> bool:
        assert self._tracker is not None
        places, feed, number = self._places, self._feed, self._number
        if number < len(places.batches):
            rows = feed.take(places.batches[number].upto)
        else:
            bounds = feed.next_bounds()
            if not bounds:
                self._is_again = False
                return False
            rows = feed.take(bounds)
            placed = sum(row.has_place for row in rows)
            places.write(upto=bounds, rows=places.rows_before(number) + placed)
        first = places.rows_before(number)
        rows, skipped = _without(rows, self._skip)
        self._skip -= skipped
        mark = ""
        if rows:
            mark = self._tracker.send(rows, first=first + skipped, again=self._is_again)
        places.write(sent=number + 1, mark=mark or places.mark)
        self._number = number + 1
        self.sent_rows += len(rows)
        return True


def _without(rows: list[Row], skip: int) -> tuple[list[Row], int]:
    """Return the rows without the first `skip` that have a place, and how many those were."""
    kept: list[Row] = []
    skipped = 0
    for row in rows:
        if row.has_place and skipped < skip:
            skipped += 1
            row = replace(row, numbers={}, samples=None)
        kept.append(row)
    return kept, skipped


def _page(url: str) -> str:
    return redacted(url) if url.startswith(("http://", "https://")) else ""


@contextmanager
def sending(run: TrackedRun, *, wait_s: float = 0.0) -> Iterator[None]:
    """Be the only process that sends a run to trackers. Raises TrackerError for another one."""
    private_folder(run.folder)
    fd = os.open(run.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until_s = time.monotonic() + wait_s
    try:
        while not _is_locked(fd):
            if time.monotonic() >= until_s:
                raise TrackerError(
                    f"Another process sends {run.run_id} to its trackers at the moment",
                    remedy="it ends some minutes after the run at the latest; try again then",
                )
            time.sleep(0.2)
        yield
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def send_rest(
    forwarder: Forwarder, *, is_over: bool, progress: Callable[[str], None] | None = None
) -> int:
    """Send all that is missing, then end the session; the run there too if it `is_over`.

    Returns the number of rows. Raises TrackerError.
    """
    try:
        while forwarder.advance():
            if progress is not None:
                progress(f"{forwarder.name}: {forwarder.sent_rows:,} rows")
        forwarder.close(forwarder.state if is_over else "")
        return forwarder.sent_rows
    except LLMOpsError:
        raise
    except Exception as error:
        raise TrackerError(
            f"{forwarder.name} did not take all of the run: {describe(error)}",
            remedy="the same command sends what is missing once the tracker answers",
        ) from error


def describe(error: BaseException) -> str:
    """Return the first line of an error, without credentials."""
    lines = str(getattr(error, "message", "") or error).strip().splitlines() or [""]
    return redacted(f"{type(error).__name__}: {lines[0][:300]}")
