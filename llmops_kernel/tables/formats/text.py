"""Code that all text formats share: bytes of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llmops_kernel.tables.files import open_url
from llmops_kernel.tables.parts import Part, unreadable

CHUNK_BYTES = 1 << 22


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """Open a file to read its bytes. Raises DataError, also for errors in the block."""
    files, path = open_url(url)
    try:
        with files.open(path, "rb") as file:
            yield file
    except OSError as error:
        raise unreadable(url, error) from error


def lines(file: Any, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end. A remote file's own iterator reads bytewise."""
    rest = b""
    while chunk := file.read(chunk_bytes):
        pieces = (rest + chunk).split(b"\n")
        rest = pieces.pop()
        for line in pieces:
            yield line + b"\n"
    if rest:
        yield rest


def part_bytes(part: Part) -> bytes:
    """Return the bytes of a part. Raises DataError."""
    with opened(part.url) as file:
        file.seek(part.offset)
        data: bytes = file.read(part.num_bytes)
    return data


def place(part: Part, line: int) -> str:
    """Return where a row is: the file, and its line in it, counted as editors do."""
    return f"{part.name or part.url}, line {part.line + line + 1:,}"
