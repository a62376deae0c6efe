"""Reads a bounded number of rows from all over a source."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.store.files import find
from llmops_kernel.tables.files import FORMATS
from llmops_kernel.tables.parts import Part
from llmops_kernel.tables.reading import read_part
from llmops_kernel.train.data.preview.wanted import Numbered, Sample, Wanted
from llmops_kernel.train.data.sources import Row, json_row, load_rows, open_rows, with_nulls
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.plan import StreamPlan, plan_stream
from llmops_kernel.train.data.stream.reader import LINES, PartRows, place, read, read_first

# --- Lines of a large file, read at places all over it: JSONL, CSV and plain text ---


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


# --- Rows from all over a Parquet file: only the pages that they are in are read ---


WHOLE_ROWS = 50_000
_WHOLE_BYTES = 32 << 20
"""Uncompressed: a file up to here is read whole."""
_GROUPS = 16


def of_parquet(path: Path, wanted: Wanted, *, count: int) -> Sample | None:
    """Return the first rows of some row groups; None if the file is small, empty or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, for that would be the whole row group.
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            total = file.metadata.num_rows
            total = total if wanted.limit is None else min(total, wanted.limit)
            if not total or _is_small(file.metadata, total):
                return None
            rows, groups = _of_groups(file, total, count, wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    of = file.metadata.num_row_groups
    where = "the first rows" if of == 1 else f"the first rows of {groups} of {of:,} row groups"
    return Sample(rows, total, where=where)


def _is_small(footer: Any, total: int) -> bool:
    groups = (footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    return total <= WHOLE_ROWS and sum(groups) <= _WHOLE_BYTES


def _of_groups(file: Any, total: int, count: int, wanted: Wanted) -> tuple[list[Numbered], int]:
    """Read the first rows of some row groups, spread over those that the run uses."""
    starts, passed = [], 0
    for group in range(file.num_row_groups):
        starts.append(passed)
        passed += file.metadata.row_group(group).num_rows
    used = [group for group, start in enumerate(starts) if start < total]
    chosen = [
        used[i * len(used) // min(_GROUPS, len(used))] for i in range(min(_GROUPS, len(used)))
    ]
    each = -(-count // len(chosen))
    columns = wanted.columns(file.schema_arrow.names)
    rows: list[Numbered] = []
    for group in chosen:
        first = starts[group]
        batches = file.iter_batches(
            batch_size=each, row_groups=[group], columns=columns, use_threads=False
        )
        found = next(batches, None)
        read = [] if found is None else found.to_pylist()
        rows += [Numbered(row, first + n) for n, row in enumerate(read, start=1)]
    return [one for one in rows if (one.number or 0) <= total][:count], len(chosen)


# --- Rows from all over data that a run streams: of some of its parts the first rows ---


_PARTS = 16
_HEAD_BYTES = 128 << 10
"""Of a part of a text so much is read, and more only if no row begins there."""


def of_parts(wanted: Wanted, *, count: int) -> Sample:
    """Return about `count` rows. Raises DataError."""
    plan = plan_stream(wanted.source, roots=wanted.roots, split=wanted.split)
    used = min(_PARTS, len(plan.parts))
    chosen = [plan.parts[piece * len(plan.parts) // used] for piece in range(used)]
    each = -(-count // used)
    heads = [_head(plan, part, each, wanted) for part in chosen]
    rows: list[Numbered] = []
    for part, found in heads:
        for index in range(min(len(found), each)):
            one = _of_part(plan, part, found, index, wanted.broken)
            rows += [] if one is None else [one]
    total, is_exact = _estimated_rows(plan, heads)
    files = "1 file" if len(plan.files) == 1 else f"{len(plan.files):,} files"
    where = "" if len(rows) == total else f"from all over {files}"
    return Sample(rows, total, is_estimate=not is_exact, where=where)


def _head(
    plan: StreamPlan, part: StreamPart, each: int, wanted: Wanted
) -> tuple[StreamPart, PartRows]:
    """Return the beginning of a part, and the rows that begin in it."""
    if plan.files[part.file].format not in LINES:
        return part, read_first(plan.files, part, rows=each, columns=wanted.columns)
    size = _HEAD_BYTES
    while size < part.num_bytes:
        head = replace(part, num_bytes=size)
        found = read(plan.files, head)
        if len(found):
            return head, found
        size *= 8
    return part, read(plan.files, part)


def _estimated_rows(
    plan: StreamPlan, heads: Sequence[tuple[StreamPart, PartRows]]
) -> tuple[int, bool]:
    """Return the rows of an epoch, and whether their number is exact: lines are not counted."""
    known = sum(one.num_rows or 0 for one in plan.parts)
    lines = [one for one in plan.parts if one.num_rows is None]
    read_bytes = sum(part.num_bytes for part, _ in heads if part.num_rows is None)
    read_rows = sum(len(found) for part, found in heads if part.num_rows is None)
    all_bytes = sum(part.num_bytes for part in lines)
    if read_bytes == all_bytes:
        return known + read_rows, True
    if not read_bytes:
        return known, False
    return known + round(read_rows / read_bytes * all_bytes), False


def _of_part(
    plan: StreamPlan, part: StreamPart, found: PartRows, index: int, broken: list[str] | None
) -> Numbered | None:
    def label() -> str:
        return place(plan.files, part, index)

    try:
        return Numbered(found.row(index, "?"), None, label)
    except DataError:
        if broken is None:
            found.row(index, label())  # raises again, with its place
            raise
        broken.append(f"{label()} cannot be read")
        return None


WHOLE_BYTES = 16 * 1024**2
"""A file up to here is read whole: a fraction of a second."""
MOST_COMPARED = WHOLE_ROWS


def sample(wanted: Wanted, *, count: int, seed: int) -> Sample:
    """Return all rows of a small source, else about `count` of it. Raises DataError.

    Of a large JSONL, CSV or text file lines are read at places that `seed` chooses, in equal
    pieces of it; of a large Parquet file the first rows of some row groups; of other streamed
    rows the first ones of some parts; of anything else the first rows.
    """
    path = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    found = None
    if path is not None and path.is_file():
        if path.suffix == ".parquet":
            return of_parquet(path, wanted, count=count) or _whole(wanted)
        if path.stat().st_size <= WHOLE_BYTES:
            return _whole(wanted)
        if not _is_quick(wanted):
            found = of_lines(path, wanted, count=count, seed=seed)
    elif wanted.is_streamed:
        return of_parts(wanted, count=count)
    return found or _first(wanted, wanted.limit if _is_quick(wanted) else count)


def row_at(wanted: Wanted, number: int) -> Row:
    """Return one row of a source by its number, from 1. Raises DataError."""
    local = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    if wanted.is_streamed and (local is None or local.is_dir()):
        raise DataError(
            f"Rows of {wanted.source}, which are streamed, have no numbers.",
            remedy="name one of its files: `llmops data CONFIG data.train=FILE --row N`",
        )
    every = open_rows(wanted.source, roots=wanted.roots, split=wanted.split, nulls=wanted.nulls)
    rows = islice(every, wanted.limit)
    last = 0
    for last, row in enumerate(rows, start=1):
        if last == number:
            return row
    raise DataError(
        f"{wanted.source} has no row {number:,}: the run uses {last:,}.",
        remedy=f"choose a row from 1 to {last:,}" if last else "check the file",
    )


def _is_quick(wanted: Wanted) -> bool:
    return wanted.limit is not None and wanted.limit <= MOST_COMPARED


def _load(wanted: Wanted, limit: int | None) -> list[Numbered]:
    rows = load_rows(
        wanted.source,
        roots=wanted.roots,
        split=wanted.split,
        limit=limit,
        broken=wanted.broken,
        nulls=wanted.nulls,
    )
    return [Numbered(row, number) for number, row in enumerate(rows, start=1)]


def _whole(wanted: Wanted) -> Sample:
    rows = _load(wanted, wanted.limit)
    return Sample(rows, len(rows))


def _first(wanted: Wanted, count: int | None) -> Sample:
    """Return the first rows, and whether these are all: one more is asked for."""
    rows = _load(wanted, None if count is None else count + 1)
    if count is None or len(rows) <= count:
        return Sample(rows, len(rows))
    if count == wanted.limit:
        return Sample(rows[:count], count)
    return Sample(rows[:count], wanted.limit, where="the first rows")
