"""Divides a table into parts: consecutive rows that a worker reads, and reads again, together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile, open_url

_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Part:
    """Consecutive rows of one file."""

    index: int
    """Counted from 0; the output's file is named by it."""
    url: str
    format: str
    first_row: int
    """Number of the first row among all rows of the table."""
    num_rows: int
    offset: int
    """JSONL: of the first byte. Parquet: number of the first row in its file."""
    num_bytes: int = 0
    """JSONL: up to the end of the last row."""


@dataclass(frozen=True)
class Plan:
    """All parts of a table; equal for each attempt, so that a retry finds what is finished."""

    parts: tuple[Part, ...]
    fingerprint: str
    """Of files, versions and limits: another one means that the table has changed."""

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)


def fingerprint(files: Sequence[TableFile], *, part_rows: int, limit: int | None) -> str:
    """Return 16 hex digits that change when the files or the division into parts do."""
    known = [[file.name, file.format, file.version] for file in files]
    text = json.dumps([known, part_rows, limit])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def divide(
    files: Sequence[TableFile],
    *,
    part_rows: int,
    limit: int | None = None,
    counted: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Return the parts of a table; `counted` gets the rows found so far.

    Parquet states its rows; the lines of a JSONL file are counted by reading it once. A last line
    without a line end counts, empty lines do not make rows. Raises DataError.
    """
    parts: list[Part] = []
    row = 0
    for file in files:
        for offset, rows, num_bytes in _pieces(file, part_rows):
            if limit is not None and row >= limit:
                break
            taken = rows if limit is None else min(rows, limit - row)
            parts.append(Part(len(parts), file.url, file.format, row, taken, offset, num_bytes))
            row += taken
            counted(row)
    mark = fingerprint(files, part_rows=part_rows, limit=limit)
    return Plan(parts=tuple(parts), fingerprint=mark)


def _pieces(file: TableFile, part_rows: int) -> Iterator[tuple[int, int, int]]:
    """Return (offset, rows, bytes) of each part of a file."""
    yield from (_jsonl_pieces if file.format == "jsonl" else _parquet_pieces)(file, part_rows)


def _parquet_pieces(file: TableFile, part_rows: int) -> Iterator[tuple[int, int, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files, path = open_url(file.url)
    try:
        with files.open(path, "rb") as opened:
            total = pq.read_metadata(opened).num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable(file.url, error) from error
    for first in range(0, total, part_rows):
        yield first, min(part_rows, total - first), 0


def _jsonl_pieces(file: TableFile, part_rows: int) -> Iterator[tuple[int, int, int]]:
    files, path = open_url(file.url)
    begin = position = rows = 0
    try:
        with files.open(path, "rb") as opened:
            for line_bytes, has_text in _lines(opened):
                position += line_bytes
                rows += has_text
                if rows == part_rows:
                    yield begin, rows, position - begin
                    begin, rows = position, 0
    except OSError as error:
        raise unreadable(file.url, error) from error
    if rows:
        yield begin, rows, position - begin


def _lines(opened: Any) -> Iterator[tuple[int, bool]]:
    """Return each line's bytes with its end, and whether it has text."""
    rest = b""
    while chunk := opened.read(_CHUNK_BYTES):
        pieces = (rest + chunk).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            yield len(piece) + 1, bool(piece) and not piece.isspace()
    if rest:
        yield len(rest), not rest.isspace()


def unreadable(url: str, error: Exception) -> DataError:
    return DataError(
        f"{url} cannot be read: {error}",
        remedy="check that the file is whole, and that the cluster's nodes may read it",
    )
