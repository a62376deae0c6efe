"""Finds lines in a file of any size; a script of its own too, so that a pattern can be cut off.

Needs nothing but Python itself: as a script it starts in a few hundredths of a second.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

CHUNK_BYTES = 1 << 20
SHOWN_BYTES = 500

Find = Callable[[bytes, int], int]
"""Where the next hit at or after a position begins; -1 without one."""
Found = dict[str, Any]


def scan(
    file: BinaryIO,
    find: Find,
    *,
    size: int,
    start: int,
    backwards: bool = False,
    limit: int = 100,
    budget_s: float = 1.5,
    chunk_bytes: int = CHUNK_BYTES,
) -> Found:
    """Return lines with a hit from offset `start` on, at most one hit per line.

    `matches`: (offset of the line, of the line after it, its first 500 bytes). `next`: the offset
    to continue from when the limit or the time was reached, None at the end (or beginning).
    """
    deadline_s = time.monotonic() + budget_s
    matches: list[tuple[int, int, str]] = []
    position = min(start, size)
    while position > 0 if backwards else position < size:
        if backwards:
            base, chunk = _before(file, position, chunk_bytes)
        else:
            base, chunk = _after(file, position, min(chunk_bytes, size - position), size)
        lines = list(_hits(chunk, find))
        for begin, end in reversed(lines) if backwards else lines:
            matches.append((base + begin, base + end + 1, _shown(chunk[begin:end])))
            if len(matches) == limit:
                offset = base + begin if backwards else base + end + 1
                return _reported(matches, offset, size=size, backwards=backwards)
        position = base if backwards else base + len(chunk)
        if time.monotonic() > deadline_s:
            break
    return _reported(matches, position, size=size, backwards=backwards)


def _reported(
    matches: list[tuple[int, int, str]], offset: int, *, size: int, backwards: bool
) -> Found:
    is_over = offset <= 0 if backwards else offset >= size
    return {"matches": matches, "next": None if is_over else offset}


def _hits(chunk: bytes, find: Find) -> Iterator[tuple[int, int]]:
    """Begin and end of each line with a hit."""
    position = 0
    while (hit := find(chunk, position)) >= 0:
        begin = chunk.rfind(b"\n", 0, hit) + 1
        end = chunk.find(b"\n", hit)
        end = len(chunk) if end < 0 else end
        yield begin, end
        position = end + 1


def _after(file: BinaryIO, position: int, length: int, size: int) -> tuple[int, bytes]:
    """Return whole lines from `position` on; a line longer than a chunk is cut."""
    file.seek(position)
    chunk = file.read(length)
    if position + len(chunk) < size:
        chunk = chunk[: chunk.rfind(b"\n") + 1] or chunk
    return position, chunk


def _before(file: BinaryIO, position: int, chunk_bytes: int) -> tuple[int, bytes]:
    """Return whole lines up to `position`."""
    base = max(0, position - chunk_bytes)
    file.seek(base)
    chunk = file.read(position - base)
    if base:
        # The first line may be cut; it comes again with the chunk before.
        cut = chunk.find(b"\n") + 1
        if 0 < cut < len(chunk):
            return base + cut, chunk[cut:]
    return base, chunk


def _shown(line: bytes) -> str:
    return line[:SHOWN_BYTES].decode(errors="replace")


def plain_find(text: str, *, ignore_case: bool) -> Find:
    needle = text.encode()
    if not ignore_case:
        return lambda chunk, position: chunk.find(needle, position)
    # Letters beyond ASCII have to be spelled alike: their lengths differ between cases.
    return _Folded(needle.lower())


class _Folded:
    """Several times as quick as a pattern that ignores the case."""

    def __init__(self, needle: bytes) -> None:
        self._needle = needle
        self._chunk = self._folded = b""

    def __call__(self, chunk: bytes, position: int) -> int:
        if chunk is not self._chunk:
            self._chunk, self._folded = chunk, chunk.lower()
        return self._folded.find(self._needle, position)


def regex_find(pattern: str, *, ignore_case: bool) -> Find:
    """Compile the pattern. A hit is within one line unless the pattern says otherwise.

    Raises `re.error`.
    """
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    return _finder(re.compile(pattern.encode(), flags))


def _finder(pattern: re.Pattern[bytes]) -> Find:
    def find(chunk: bytes, position: int) -> int:
        hit = pattern.search(chunk, position)
        return hit.start() if hit and position <= len(chunk) else -1

    return find


def main() -> None:
    """Print the result of `log_scan.py '{"path": ..., "pattern": ..., ...}'` as JSON."""
    request = json.loads(sys.argv[1])
    find = regex_find(request.pop("pattern"), ignore_case=request.pop("ignore_case"))
    with open(request.pop("path"), "rb") as file:
        print(json.dumps(scan(file, find, **request)))


if __name__ == "__main__":
    main()
