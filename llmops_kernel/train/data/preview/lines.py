"""Lines of a large file, read at places all over it: JSONL, CSV and plain text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import FORMATS
from llmops_kernel.tables.parts import Part
from llmops_kernel.tables.reading import read_part
from llmops_kernel.train.data.preview.wanted import Numbered, Sample, Wanted
from llmops_kernel.train.data.sources import Row, json_row
from llmops_kernel.train.data.tables import with_nulls

_PLACES = 256
"""Places in the file; a disk needs up to 10 ms for each."""
_LONGEST_LINE = 64 << 20
_COUNTED_BYTES = 1 << 30
"""Lines before a row are counted up to here, which takes a second; a row beyond is named by its
first byte."""
_CHUNK_BYTES = 1 << 22
_LOOKED_AT_BYTES = 1 << 20


@dataclass(frozen=True)
class _Line:
    at: int
    """Its first byte."""
    text: bytes
    number: int | None
    """Of the line, from 1; None where it is not known."""


def of_lines(path: Path, wanted: Wanted, *, count: int, seed: int) -> Sample | None:
    """Return about `count` rows from all over a file; None where a line need not be a row.

    A CSV is read so if no value of its first MiB goes over several lines. Raises DataError.
    """
    kind = _kind(path)
    if kind not in {"jsonl", "csv", "text"} or (kind == "csv" and _has_long_values(path)):
        return None
    size = path.stat().st_size
    spread = _spread_lines(path, wanted.source, size, count=count, chance=random.Random(seed))
    lines = [one for one in spread if one.at or kind != "csv"]  # The first one is the header.
    if not lines:
        return None
    mean = sum(len(one.text) for one in lines) / len(lines)
    total = round(size / mean)
    if wanted.limit is not None and wanted.limit < total:
        total = wanted.limit
        lines = [one for one in lines if one.at < wanted.limit * mean]
    if kind == "jsonl":
        rows = [_json(path, wanted, one) for one in lines]
    elif kind == "csv" and any(one.text.count(b'"') % 2 for one in lines):
        return None
    else:
        rows = [_of_table(path, kind, wanted, one) for one in lines]
    found = [one for one in rows if one is not None]
    return Sample(found, total, is_estimate=True, where="from all over the file")


def _kind(path: Path) -> str | None:
    found = FORMATS.get(path.suffix.lower())
    if found != "json":
        return found
    with path.open("rb") as file:
        return "json" if file.read(1024).strip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[" else "jsonl"


def _has_long_values(path: Path) -> bool:
    with path.open("rb") as file:
        lines = file.read(_LOOKED_AT_BYTES).split(b"\n")[:-1]
    return not lines or any(line.count(b'"') % 2 for line in lines)


def _spread_lines(
    path: Path, source: str, size: int, *, count: int, chance: random.Random
) -> Iterator[_Line]:
    """Yield consecutive lines of each of some equal pieces, none twice."""
    places = min(count, _PLACES)
    each, end = -(-count // places), 0
    with path.open("rb") as file:
        for piece in range(places):
            begin = int((piece + chance.random()) * size / places) if piece else 0
            if begin:
                file.seek(begin - 1)
                _line(file, source)
                begin = file.tell()
            if begin < end:
                file.seek(begin := end)
            for index, text in enumerate(islice(_lines(file, source), each), start=1):
                if text.strip():
                    yield _Line(begin, text, None if piece else index)
                begin += len(text)
            end = begin


def _lines(file: Any, source: str) -> Iterator[bytes]:
    while line := _line(file, source):
        yield line


def _line(file: Any, source: str) -> bytes:
    line: bytes = file.readline(_LONGEST_LINE)
    if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
        raise DataError(
            f"{source} has a line of more than {_LONGEST_LINE >> 20} MiB, near byte"
            f" {file.tell():,}.",
            remedy="write each row in a line of its own",
        )
    return line


def _json(path: Path, wanted: Wanted, line: _Line) -> Numbered | None:
    def number() -> int | str:
        return line.number or place_of(path, line.at, line_at)

    try:
        row = json_row(line.text, 1, wanted.source)
    except DataError as error:
        if wanted.broken is not None:
            wanted.broken.append(error.message)
            return None
        row = json_row(line.text, number(), wanted.source)  # raises again, with the right number
    return Numbered(row, line.number, number)


def _of_table(path: Path, kind: str, wanted: Wanted, line: _Line) -> Numbered | None:
    def number() -> int | str:
        return place_of(path, line.at, _rows_before if kind == "text" else _lines_before)

    row, wrong = _table_row(path, kind, line, 0)
    if not wrong:
        return Numbered(with_nulls(row) if wanted.nulls and kind == "csv" else row, None, number)
    if wanted.broken is None:
        found = number()
        if isinstance(found, int):
            _, wrong = _table_row(path, kind, line, found)
        raise DataError(
            f"{wanted.source}: {wrong}.",
            remedy="correct or delete this row, or set data.on_error=skip",
        )
    wanted.broken.append(f"{wanted.source}: {wrong}.")
    return None


def _table_row(path: Path, kind: str, line: _Line, number: int) -> tuple[Row, str]:
    """Return the row of a line, and what is wrong with it."""
    before = line_at(path, line.at) - 1 if number else 0
    part = Part(
        index=0,
        url=str(path),
        format=kind,
        first_row=number,
        num_rows=1,
        offset=line.at,
        num_bytes=len(line.text),
        line=before,
        name=path.name,
    )
    try:
        (found,) = read_part(part).rows
    except DataError:  # It has the number of the line in this part.
        return {}, f"the row at byte {line.at:,} cannot be read as CSV"
    if not found.error or number:
        return found.values, found.error
    return found.values, f"the row at byte {line.at:,} {_what(found.error)}"


def _what(error: str) -> str:
    """Return what is wrong, without a row's number and line."""
    return error.removeprefix("row 0 ").rpartition(" (")[0]


def place_of(path: Path, at: int, count: Callable[[Path, int], int]) -> int | str:
    """Return the number that `count` finds of what begins at a byte; far away only the byte."""
    return count(path, at) if at <= _COUNTED_BYTES else f"at byte {at:,}"


def line_at(path: Path, at: int) -> int:
    """Return the number of the line that begins at a byte."""
    number, left = 1, at
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            number += chunk.count(b"\n")
            left -= len(chunk)
    return number


def _lines_before(path: Path, at: int) -> int:
    """Return the number of a row of a CSV, whose first line is the header."""
    return line_at(path, at) - 1


def _rows_before(path: Path, at: int) -> int:
    """Return the number of a row of a text, in which empty lines are none."""
    number, position = 1, 0
    with path.open("rb") as file:
        for line in file:
            position += len(line)
            if position > at:
                break
            number += not line.isspace()
    return number
