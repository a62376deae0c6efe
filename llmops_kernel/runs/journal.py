"""The append-only journal of a run: one writer a stream, any number of readers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from llmops_kernel.metrics.events import AnyEvent, Event, parse_event

E = TypeVar("E", bound=Event)


class JournalWriter:
    """Appends events to one stream, in every folder that can be reached.

    A line is one `write(2)` on an `O_APPEND` descriptor: what was written survives
    `kill -9` of the writer. On a full disk the lines wait in memory and are tried again
    with the next event, so training goes on.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        stream: str,
        attempt: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stream = stream
        self._attempt = attempt
        self._clock = clock
        self._lock = threading.Lock()
        self._files = [_AppendFile(folder / f"{stream}.jsonl") for folder in folders]
        # A writer that is opened again (same stream) goes on counting.
        self._seq = max((file.last_seq() for file in self._files), default=0)

    def emit(self, event: E) -> E:
        """Number, stamp and append the event; returns it as written."""
        with self._lock:
            self._seq += 1
            written = event.model_copy(
                update={
                    "stream": self.stream,
                    "seq": self._seq,
                    "time_s": event.time_s or self._clock(),
                    "attempt": self._attempt,
                }
            )
            line = written.model_dump_json(exclude_none=True).encode() + b"\n"
            for file in self._files:
                file.append(line)
        return written

    def close(self) -> None:
        with self._lock:
            for file in self._files:
                file.close()


class _AppendFile:
    """One file of one writer, with the lines that a full disk refused."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._pending = b""
        self._end_half_line()

    def _end_half_line(self) -> None:
        """A writer killed inside `write` may leave half a line; close it off."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            self._pending = b"\n"

    def last_seq(self) -> int:
        return max((event.seq for event in read_lines(self._path.read_bytes())), default=0)

    def append(self, line: bytes) -> None:
        self._pending += line
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._fd, self._pending) :]
        except OSError:
            # ENOSPC, EDQUOT, EIO: keep what is left and try with the next event.
            pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_lines(data: bytes) -> list[AnyEvent]:
    """Parse whole lines; a last line without its newline, and unreadable ones, are left out."""
    events: list[AnyEvent] = []
    for line in data.split(b"\n")[:-1]:
        if not line.strip():
            continue
        try:
            events.append(parse_event(line))
        except ValidationError:
            continue  # A kind of a newer version, or the half line of a killed writer.
    return events


class StreamTail:
    """Reads what was appended to one journal file since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[AnyEvent]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return read_lines(whole)


class FolderTail:
    """Reads what was appended to any stream of a journal folder since the last call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, StreamTail] = {}

    def read(self) -> list[AnyEvent]:
        """New events, by time; each event of a stream exactly once and in order."""
        for path in sorted(self._folder.glob("*.jsonl")):
            self._tails.setdefault(path, StreamTail(path))
        return merge(tail.read() for tail in self._tails.values())


def merge(batches: Iterable[Sequence[AnyEvent]]) -> list[AnyEvent]:
    """All events by time; ties keep the order inside a stream."""
    events = [event for batch in batches for event in batch]
    return sorted(events, key=lambda event: (event.time_s, event.stream, event.seq))


class Deduplicator:
    """Passes each (stream, seq) once, whatever source it came from and however often."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}

    def new(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        fresh = []
        for event in events:
            seen = self._seen.setdefault(event.stream, set())
            if event.seq not in seen:
                seen.add(event.seq)
                fresh.append(event)
        return fresh

    def gaps(self) -> dict[str, list[int]]:
        """Sequence numbers still missing below the highest seen, by stream; empty is whole."""
        missing = {s: sorted(set(range(1, max(seen) + 1)) - seen) for s, seen in self._seen.items()}
        return {stream: numbers for stream, numbers in missing.items() if numbers}
