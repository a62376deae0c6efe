"""One file of one journal stream, with the lines that could not be written yet."""

from __future__ import annotations

import fcntl
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic_core import PydanticSerializationError

from llmops_kernel.metrics.events import AnyEvent, Event

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
    """One file of one writer, with the lines that could not be written yet."""

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
        """Sequence number and time of the last event in the file; 0 when there is none."""
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
        written = os.write(self._fd, line.data[self._done :] if self._done else line.data)
        self._end += written
        self._done += written
        if self._done == len(line.data):
            self.pending.popleft()
            self._done = 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
