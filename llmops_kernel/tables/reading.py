"""Divides a table into parts and reads the rows of a part."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llmops_kernel.tables.files import TableFile
from llmops_kernel.tables.formats import array, arrow, lines, parquet, separated
from llmops_kernel.tables.parts import Part, PartRows, Piece, Plan


@dataclass(frozen=True)
class _Format:
    pieces: Callable[[TableFile, int], Iterator[Piece]]
    """Divide a file into pieces of at most so many rows. Raises DataError."""
    read: Callable[[Part], PartRows]
    """Read a part. A broken row becomes a row with an error. Raises DataError."""


_FORMATS: Final = {
    "jsonl": _Format(lines.pieces, lines.read_json),
    "text": _Format(lines.pieces, lines.read_text),
    "json": _Format(array.pieces, array.read),
    "csv": _Format(separated.pieces, separated.read),
    "parquet": _Format(parquet.pieces, parquet.read),
    "arrow": _Format(arrow.pieces, arrow.read),
}


def fingerprint(files: Sequence[TableFile], *, part_rows: int, limit: int | None) -> str:
    """Return 16 hex digits that change when the files or the division into parts do."""
    versions = [[file.name, file.format, file.version] for file in files]
    text = json.dumps([versions, part_rows, limit])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def divide(
    files: Sequence[TableFile],
    *,
    part_rows: int,
    limit: int | None = None,
    first_row: int = 0,
    on_count: Callable[[int], None] = lambda _: None,
) -> Plan:
    """Return the parts of a table; `on_count` gets the rows found so far.

    `first_row` is the number of the first row.

    Parquet and Arrow files state their rows; those of a text are counted by reading it once. A
    last line without a line end counts, empty lines do not make rows. Raises DataError.
    """
    parts = iter_parts(
        files, part_rows=part_rows, limit=limit, first_row=first_row, on_count=on_count
    )
    mark = fingerprint(files, part_rows=part_rows, limit=limit)
    return Plan(parts=tuple(parts), fingerprint=mark)


def iter_parts(
    files: Sequence[TableFile],
    *,
    part_rows: int,
    limit: int | None = None,
    first_row: int = 0,
    on_count: Callable[[int], None] = lambda _: None,
) -> Iterator[Part]:
    """Yield the parts as `divide` returns them; each is found before the file is read further."""
    row = 0
    numbers = itertools.count()
    for file in files:
        for piece in _FORMATS[file.format].pieces(file, part_rows):
            if limit is not None and row >= limit:
                break
            num_rows = piece.num_rows if limit is None else min(piece.num_rows, limit - row)
            yield Part(
                index=next(numbers),
                url=file.url,
                format=file.format,
                first_row=first_row + row,
                num_rows=num_rows,
                offset=piece.offset,
                num_bytes=piece.num_bytes,
                line=piece.line,
                name=file.name,
            )
            row += num_rows
            on_count(row)


def read_part(part: Part) -> PartRows:
    """Return the rows of a part, in order. Raises DataError if the file is gone or broken.

    A broken row becomes a row with an error, never an exception.
    """
    return _FORMATS[part.format].read(part)
