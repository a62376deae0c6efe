"""The append-only journal of a run: one writer a stream, any number of readers."""

from __future__ import annotations

import fcntl
import gc
import itertools
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from llmops_kernel.metrics.events import AnyEvent, Event, parse_event, parse_events

E = TypeVar("E", bound=Event)

_PARSE_BYTES = 64 * 1024
_MANY_BYTES = 1024**2
_STEP_HEAD = re.compile(
    rb'\{"stream":"[^"{}\\]*","seq":(\d+),"time_s":[-+.\deE]+,"attempt":\d+,"kind":"step","step":\d+,'
)


class JournalWriter:
    """Appends events to one stream, in every folder that can be reached.

    A line is one `write(2)` on an `O_APPEND` descriptor: what was written survives
    `kill -9` of the writer. On a full or absent disk the lines wait in memory and are
    tried again with the next event, so training continues; `num_waiting` counts them.

    Time never steps back inside a stream, whatever the clock does; an event that brings
    its own `time_s` keeps it. Safe for threads and in signal handlers. Client and
    observer streams may also be written by several processes at once: a line that waits
    gets its final number when it is written.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        stream: str,
        attempt: int,
        clock: Callable[[], float] = time.time,
        follow: Callable[[Event], object] = lambda _: None,
    ) -> None:
        """`follow` gets each event after it was written; it must not raise."""
        self.stream = stream
        self._follow = follow
        self._attempt = attempt
        self._clock = clock
        # Re-entrant: a signal handler may emit while its own thread is inside `emit`.
        self._lock = threading.RLock()
        self._is_alone = False
        self._files = [AppendFile(folder / f"{stream}.jsonl") for folder in folders]
        # A driver or worker stream has one writer by construction and is on the training
        # path, so it is spared the lock (milliseconds on a network file system).
        self._is_shared = stream.endswith(("-client", "-observer"))
        self._time_s = 0.0
        self._seqs = itertools.count(1)
        self._continue_numbering()

    def _continue_numbering(self) -> None:
        """Count and date on from what is in the files, also from another writer."""
        ends = [file.read_end(read_lines) for file in self._files]
        last = max((seq for seq, _ in ends), default=0)
        self._seqs = itertools.count(last + 1)
        self._time_s = max([self._time_s, *(time_s for _, time_s in ends)])

    def emit(self, event: E) -> E:
        """Number, stamp and append the event; returns it as written. Never raises `OSError`."""
        with self._lock, self._exclusive():
            stamped = event.model_copy(
                update={
                    "stream": self.stream,
                    "seq": next(self._seqs),  # One step even for a signal handler.
                    "time_s": event.time_s or self._now(),
                    "attempt": self._attempt,
                }
            )
            line = Line(stamped)
            for file in self._files:
                file.append(line)
            self._follow(stamped)
        return stamped

    def _now(self) -> float:
        self._time_s = max(self._time_s, self._clock())
        return self._time_s

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep out the other writers of a shared stream; take account of what they have written."""
        if not self._is_shared or not self._files or self._is_alone:
            yield
            return
        for file in self._files:
            file.open()  # It may have been refused until now, and another writer may have made it.
        with self._files[0].locked():
            self._is_alone = True
            try:
                if any(file.has_grown() for file in self._files):
                    self._continue_numbering()
                    self._renumber()
                yield
            finally:
                self._is_alone = False

    def _renumber(self) -> None:
        """Give the lines that no file has new numbers: another writer has used theirs."""
        for file in self._files:
            file.begin_line_again()
        if not self._files[0].pending:
            return
        pending_ids = [{id(line) for line in file.pending} for file in self._files[1:]]
        for line in list(self._files[0].pending):
            if all(id(line) in ids for ids in pending_ids):
                line.replace(line.event.model_copy(update={"seq": next(self._seqs)}))

    @property
    def paths(self) -> list[Path]:
        """Return its file in each folder."""
        return [file.path for file in self._files]

    @property
    def num_waiting(self) -> int:
        """Return the number of lines that no folder has taken; above 0, every disk refuses."""
        return min((len(file.pending) for file in self._files), default=0)

    def close(self) -> None:
        with self._lock:
            if any(file.pending for file in self._files):
                with self._exclusive():
                    for file in self._files:
                        file.flush()
            for file in self._files:
                file.close()


def read_lines(data: bytes) -> list[AnyEvent]:
    """Parse whole lines; a last line without its newline, and unreadable ones, are left out."""
    end = data.rfind(b"\n") + 1
    if end < _MANY_BYTES:
        return _parsed(data, end)
    with _uncollected():
        return _parsed(data, end)


def numbered_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return (sequence number, line) of each whole line that is an event; the others are left out.

    For those who copy lines. A step's number is read without parsing its line.
    """
    numbered = []
    for line in data.split(b"\n"):
        seq = _seq_of(line)
        if seq is not None:
            numbered.append((seq, line))
    return numbered


def _seq_of(line: bytes) -> int | None:
    # A step has no text and no nested object: one that ends with a brace is whole.
    head = _STEP_HEAD.match(line)
    if head is not None and line.endswith(b"}") and b"{" not in line[1:]:
        return int(head[1])
    event = _parse_line(line) if line else None
    return None if event is None else event.seq


def _parsed(data: bytes, end: int) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    begin = 0
    while begin < end:
        # Small parts stay in the processor's cache, and one broken line slows down only its own.
        cut = data.rfind(b"\n", begin, begin + _PARSE_BYTES) + 1 or data.find(b"\n", begin) + 1
        events += _parse_part(data[begin:cut])
        begin = cut
    return events


def _parse_part(lines: bytes) -> list[AnyEvent]:
    try:
        return parse_events(lines)
    except ValidationError:
        return [event for line in lines.split(b"\n") if (event := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> AnyEvent | None:
    try:
        return parse_event(line)
    except ValidationError:
        return None  # Empty, a kind of a newer version, or the half line of a killed writer.


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend the garbage collector, which would scan all events and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                # All young objects become old at once, without a collection.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class StreamTail:
    """Reads what was appended to one journal file since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Bytes that were read, up to the end of a line."""
        self.is_behind = False
        """Whether the last call left whole lines for the next."""

    def read(self, most_bytes: int | None = None) -> list[AnyEvent]:
        """Return the new events; with `most_bytes`, those of the next so many bytes."""
        self.is_behind = False
        try:
            if self.path.stat().st_size == self.offset:
                return []
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    self.offset = 0  # Replaced by another file: begin again.
                file.seek(self.offset)
                data = file.read(most_bytes)
                while b"\n" not in data and len(data) < size - self.offset:
                    data += file.read(len(data))  # A line is longer than that.
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.is_behind = bool(whole) and self.offset + len(data) < size
        self.offset += len(whole)
        return read_lines(whole)


class FolderTail:
    """Reads what was appended to any stream of a journal folder since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, StreamTail] = {}

    def read(self, most_bytes: int | None = None) -> list[AnyEvent]:
        """Return new events of all streams, by time; each line of a file exactly once.

        With `most_bytes` so much of each stream; `is_behind` says whether there is more.
        """
        for path in self._streams():
            self._tails.setdefault(path, StreamTail(path))
        return merge(tail.read(most_bytes) for tail in self._tails.values())

    @property
    def is_behind(self) -> bool:
        return any(tail.is_behind for tail in self._tails.values())

    def _streams(self) -> list[Path]:
        """Return the streams; empty for a run that is deleted during the read."""
        try:
            return sorted(self._folder.glob("*.jsonl"))
        except FileNotFoundError:
            return []


def merge(batches: Iterable[Sequence[AnyEvent]]) -> list[AnyEvent]:
    """Sort all events by time, then by stream; each batch is in the order of its stream."""
    ordered = sorted((batch for batch in batches if batch), key=lambda batch: batch[0].stream)
    events = [event for batch in ordered for event in batch]
    events.sort(key=attrgetter("time_s"))  # Stable, and quick where much is in order already.
    return events


class Deduplicator:
    """Passes each (stream, seq) once, whatever source it came from and however often."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}

    def new(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        unseen = []
        for event in events:
            seqs = self._seen.setdefault(event.stream, set())
            if event.seq not in seqs:
                seqs.add(event.seq)
                unseen.append(event)
        return unseen

    def gaps(self) -> dict[str, list[int]]:
        """Return the sequence numbers that are missing below the highest seen, by stream."""
        missing = {s: sorted(set(range(1, max(seqs) + 1)) - seqs) for s, seqs in self._seen.items()}
        return {stream: numbers for stream, numbers in missing.items() if numbers}


# --- A file of a journal stream, with its pending lines ---


_TAIL_BYTES = 64 * 1024


def _encode(event: Event) -> bytes:
    try:
        return event.model_dump_json(exclude_none=True).encode() + b"\n"
    except PydanticSerializationError:
        # Lone surrogates, as in a file name that is not UTF-8: write the rest.
        text = json.dumps(event.model_dump(exclude_none=True), ensure_ascii=False, default=str)
        return text.encode(errors="replace") + b"\n"


class Line:
    """An event on its way into the files of a stream."""

    __slots__ = ("data", "event")

    def __init__(self, event: Event) -> None:
        self.replace(event)

    def replace(self, event: Event) -> None:
        """Take another event in its place, which no file has yet."""
        self.event, self.data = event, _encode(event)


class AppendFile:
    """A file of one writer, with the lines that could not be written yet."""

    def __init__(self, path: Path) -> None:
        self.pending: deque[Line] = deque()
        self.path = path
        self._fd = -1
        self._end = 0
        self._done = 0
        """Bytes of the first waiting line that are in the file."""
        self._is_broken = False
        """Whether the file ends with half a line that nobody continues."""
        self._is_writing = False
        self.flush()

    def open(self) -> None:
        """Open the file unless it is open, or refused."""
        if self._fd < 0:
            try:
                self._open()
            except OSError:
                return  # The next event tries it again.

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._is_broken = self._ends_within_a_line()

    def _ends_within_a_line(self) -> bool:
        size = os.fstat(self._fd).st_size
        return bool(size) and os.pread(self._fd, 1, size - 1) != b"\n"

    def has_grown(self) -> bool:
        return self._fd >= 0 and os.fstat(self._fd).st_size != self._end

    def read_end(self, parse: Callable[[bytes], list[AnyEvent]]) -> tuple[int, float]:
        """Return sequence number and time of the last event in the file; 0 when there is none."""
        if self._fd < 0:
            return 0, 0.0
        self._end = os.fstat(self._fd).st_size
        for start in (max(0, self._end - _TAIL_BYTES), 0):
            # The last line may lack nothing but its newline, which is still pending.
            events = parse(os.pread(self._fd, self._end - start, start) + b"\n")
            if events:
                return max(e.seq for e in events), max(e.time_s for e in events)
        return 0, 0.0

    def begin_line_again(self) -> None:
        """Write the first waiting line from its beginning: others have written after its half."""
        if self._fd < 0:
            return
        if self.pending and self._done == len(self.pending[0].data) - 1:
            self.pending.popleft()  # It lacked nothing but its newline, and gets that.
        self._done = 0
        self._is_broken = self._ends_within_a_line()

    @contextmanager
    def locked(self) -> Iterator[None]:
        fd = self._fd
        try:
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            fd = -1  # A file system without locks: one writer at a time must do.
        try:
            yield
        finally:
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def append(self, line: Line) -> None:
        self.pending.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the disk takes it."""
        if self._is_writing:
            return  # In a signal handler: the interrupted `flush` continues with the new line.
        self._is_writing = True
        try:
            if self._fd < 0:
                self._open()
            if self._is_broken:  # Close off the half line of a killed writer.
                self._end += os.write(self._fd, b"\n")
                self._is_broken = False
            while self.pending:
                self._write(self.pending[0])
        except OSError:
            pass  # ENOSPC, EDQUOT, EIO, no folder: keep what is left, try with the next event.
        finally:
            self._is_writing = False

    def _write(self, line: Line) -> None:
        num_written = os.write(self._fd, line.data[self._done :] if self._done else line.data)
        self._end += num_written
        self._done += num_written
        if self._done == len(line.data):
            self.pending.popleft()
            self._done = 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SeenNumbers:
    """Sequence numbers from 1 on, in any order: a stream without gaps costs one number."""

    __slots__ = ("_beyond", "_upto")

    def __init__(self) -> None:
        self._upto = 0
        self._beyond: set[int] = set()

    def add(self, number: int) -> bool:
        """Return False if it was there before."""
        if number == self._upto + 1:
            self._upto = number
            while self._beyond and self._upto + 1 in self._beyond:
                self._upto += 1
                self._beyond.discard(self._upto)
            return True
        if 0 < number <= self._upto or number in self._beyond:
            return False
        self._beyond.add(number)
        return True
