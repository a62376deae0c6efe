"""Windows into a log of any size, by byte offset; never the whole of it in memory."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from llmops_kernel.errors import ConfigError, StoreError
from llmops_kernel.store import log_scan
from llmops_kernel.store.files import store_errors

WINDOW_BYTES = 256 * 1024
MAX_WINDOW_BYTES = 4 * 1024**2
MAX_TAIL_BYTES = 32 * 1024**2
SEARCH_S = 1.5
"""How long one search runs before it returns the position to continue from."""
_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Window:
    """Whole lines of a log."""

    offset: int
    text: str
    end: int
    """Offset after the last whole line: where the next window begins."""
    size: int
    """Bytes of the whole log by now."""
    partial: str = ""
    """The last line of a log that is being written, as long as it has no line end."""


@dataclass(frozen=True, kw_only=True)
class Matches:
    hits: list[tuple[int, int, str]]
    """(offset of the line, of the line after it, its first 500 bytes)."""
    next: int | None
    """Where to continue; None when everything was searched."""


class LogText:
    """A log in a file, or in memory where it came from elsewhere. A missing file is empty."""

    def __init__(self, source: Path | bytes) -> None:
        self._source = source

    @property
    def path(self) -> Path | None:
        return self._source if isinstance(self._source, Path) else None

    @property
    def size(self) -> int:
        if isinstance(self._source, bytes):
            return len(self._source)
        try:
            return self._source.stat().st_size
        except OSError:
            return 0

    def window(self, offset: int, limit: int = WINDOW_BYTES) -> Window:
        """Return the text from the line with `offset` on; a line longer than `limit` is cut."""
        with self._open() as file:
            size = _size_of(file)
            begin = _line_begin(file, min(max(0, offset), size))
            data = _read(file, begin, min(limit, MAX_WINDOW_BYTES))
            cut = data.rfind(b"\n") + 1
            partial = b""
            if begin + len(data) >= size:
                data, partial = data[:cut], data[cut:]
            elif cut:
                data = data[:cut]
            return _window(begin, data, size=size, partial=partial)

    def before(self, offset: int, limit: int = WINDOW_BYTES) -> Window:
        """Return the lines that end at `offset`, where a line must begin."""
        with self._open() as file:
            size = _size_of(file)
            end = min(max(0, offset), size)
            begin = max(0, end - min(limit, MAX_WINDOW_BYTES))
            data = _read(file, begin, end - begin)
            cut = data.find(b"\n") + 1
            if begin and 0 < cut < len(data):
                begin, data = begin + cut, data[cut:]
            return _window(begin, data, size=size)

    def end(self, limit: int = WINDOW_BYTES) -> Window:
        """Return the last lines, including the one that is being written."""
        # More than asked for: the window begins with a whole line, and the log may grow meanwhile.
        return self.window(max(0, self.size - limit), limit + 2 * _BLOCK_BYTES)

    def tail(self, lines: int) -> str:
        """Return the last lines, of at most 32 MiB."""
        with self._open() as file:
            end = _size_of(file)
            blocks: list[bytes] = []
            begin, breaks = end, 0
            while begin > max(0, end - MAX_TAIL_BYTES) and breaks <= lines:
                length = min(_BLOCK_BYTES, begin)
                begin -= length
                blocks.append(_read(file, begin, length))
                breaks += blocks[-1].count(b"\n")
        text = b"".join(reversed(blocks)).decode(errors="replace")
        # Not `splitlines`: a progress bar's carriage returns are no line ends.
        lines_of_text = (
            text.split("\n")[-lines - 1 :] if text.endswith("\n") else text.split("\n")[-lines:]
        )
        return "\n".join(lines_of_text) if lines > 0 else ""

    def piece(self, offset: int, length: int) -> bytes:
        """Return the bytes as they are, regardless of line ends."""
        with self._open() as file:
            return _read(file, offset, min(length, MAX_WINDOW_BYTES))

    def search(
        self,
        pattern: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        start: int = 0,
        backwards: bool = False,
        limit: int = 100,
        budget_s: float = SEARCH_S,
    ) -> Matches:
        """Return lines with a hit, from the line at `start` on or, backwards, before it.

        Raises ConfigError for a pattern that cannot be read or takes too long.
        """
        if not pattern:
            return Matches(hits=[], next=None)
        options = {
            "start": max(0, start),
            "backwards": backwards,
            "limit": limit,
            "budget_s": budget_s,
        }
        if regex:
            _compile(pattern)
            reported = self._search_apart(
                {"pattern": pattern, "ignore_case": ignore_case, **options}
            )
        else:
            find = log_scan.plain_find(pattern, ignore_case=ignore_case)
            with self._open() as file:
                size = _size_of(file)
                reported = log_scan.scan(
                    file,
                    find,
                    size=size,
                    start=max(0, start),
                    backwards=backwards,
                    limit=limit,
                    budget_s=budget_s,
                )
        return Matches(
            hits=[(begin, end, text) for begin, end, text in reported["matches"]],
            next=reported["next"],
        )

    def _search_apart(self, request: dict[str, object]) -> log_scan.Found:
        """Search in a separate process: Python cannot interrupt a pattern that does not end."""
        with tempfile.TemporaryDirectory(prefix="llmops-log-") as folder:
            path = self.path or Path(folder, "log")
            if isinstance(self._source, bytes):
                path.write_bytes(self._source)
            request |= {"path": str(path), "size": self.size}
            command = [sys.executable, "-I", "-S", log_scan.__file__, json.dumps(request)]
            limit_s = float(str(request["budget_s"])) + 2.0
            try:
                process = subprocess.run(command, capture_output=True, timeout=limit_s, check=False)
            except subprocess.TimeoutExpired:
                raise ConfigError(
                    f"The pattern {request['pattern']!r} takes too long on some line",
                    remedy="search for plain text, or avoid nested repetitions such as (a+)+",
                ) from None
        if process.returncode:
            raise StoreError(
                f"The search failed: {process.stderr.decode(errors='replace')[-300:]}",
                remedy=f"see whether {path} can be read",
            )
        result: log_scan.Found = json.loads(process.stdout)
        return result

    def _open(self) -> BinaryIO:
        if isinstance(self._source, bytes):
            return io.BytesIO(self._source)
        try:
            with store_errors("read log", self._source):
                return self._source.open("rb")
        except StoreError:
            if not self._source.exists():
                return io.BytesIO()
            raise


def _compile(pattern: str) -> None:
    try:
        re.compile(pattern.encode())
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{pattern!r} is not a valid regular expression: {error}",
            remedy="turn regular expressions off, or write \\ before special characters",
        ) from None


def _window(begin: int, data: bytes, *, size: int, partial: bytes = b"") -> Window:
    return Window(
        offset=begin,
        text=data.decode(errors="replace"),
        end=begin + len(data),
        size=size,
        partial=partial.decode(errors="replace"),
    )


def _line_begin(file: BinaryIO, offset: int) -> int:
    """Return the begin of the line with `offset`; `offset` itself inside a very long line."""
    back = max(0, offset - _BLOCK_BYTES)
    cut = _read(file, back, offset - back).rfind(b"\n")
    if cut >= 0:
        return back + cut + 1
    return 0 if back == 0 else offset


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)


def _size_of(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)
