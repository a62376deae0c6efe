"""Reads a bounded number of rows from all over a source."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import FORMATS
from llmops_kernel.tables.parts import Part
from llmops_kernel.tables.reading import read_part
from llmops_kernel.train.data.preview.look import NumberedRow, RowRequest, Sample
from llmops_kernel.train.data.sources import Row, json_row, with_nulls
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.plan import StreamPlan, plan_stream
from llmops_kernel.train.data.stream.reader import LINES, PartRows, place, read, read_first

# --- Lines from all over a large file: JSONL, CSV and plain text ---


_PLACES = 256
"""Places in the file; a disk needs up to 10 ms for each."""
_LONGEST_LINE = 64 << 20
_COUNTED_BYTES = 1 << 30
"""Lines before a row are counted up to here, which takes a second; a row beyond is named by its
first byte."""
_CHUNK_BYTES = 1 << 22
_SNIFFED_BYTES = 1 << 20


@dataclass(frozen=True)
class _Line:
    offset: int
    """Its first byte."""
    text: bytes
    number: int | None
    """Number of the line, from 1; None where it is not known."""


def sample_lines(path: Path, request: RowRequest, *, count: int, seed: int) -> Sample | None:
    """Return about `count` rows from all over a file; None where a line need not be a row.

    A CSV is read so if no value of its first MiB goes over several lines. Raises DataError.
    """
    kind = _kind(path)
    if kind not in {"jsonl", "csv", "text"} or (kind == "csv" and _has_long_values(path)):
        return None
    size = path.stat().st_size
    spread = _spread_lines(path, request.source.name, size, count=count, chance=random.Random(seed))
    lines = [
        line for line in spread if line.offset or kind != "csv"
    ]  # The first one is the header.
    if not lines:
        return None
    mean = sum(len(line.text) for line in lines) / len(lines)
    total = round(size / mean)
    if request.limit is not None and request.limit < total:
        total = request.limit
        lines = [line for line in lines if line.offset < request.limit * mean]
    if kind == "jsonl":
        rows = [_json(path, request, line) for line in lines]
    elif kind == "csv" and any(line.text.count(b'"') % 2 for line in lines):
        return None
    else:
        rows = [_parse_line(path, kind, request, line) for line in lines]
    numbered_rows = [line for line in rows if line is not None]
    return Sample(numbered_rows, total, is_estimate=True, where="from all over the file")


def _kind(path: Path) -> str | None:
    by_suffix = FORMATS.get(path.suffix.lower())
    if by_suffix != "json":
        return by_suffix
    with path.open("rb") as file:
        return "json" if file.read(1024).strip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[" else "jsonl"


def _has_long_values(path: Path) -> bool:
    with path.open("rb") as file:
        lines = file.read(_SNIFFED_BYTES).split(b"\n")[:-1]
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


def _json(path: Path, request: RowRequest, line: _Line) -> NumberedRow | None:
    def number() -> int | str:
        return line.number or place_of(path, line.offset, line_at)

    try:
        row = json_row(line.text, 1, request.source.name)
    except DataError as error:
        if request.broken is not None:
            request.broken.append(error.message)
            return None
        row = json_row(
            line.text, number(), request.source.name
        )  # raises again, with the right number
    return NumberedRow(row, line.number, number)


def _parse_line(path: Path, kind: str, request: RowRequest, line: _Line) -> NumberedRow | None:
    def number() -> int | str:
        return place_of(path, line.offset, _rows_before if kind == "text" else _lines_before)

    row, wrong = _table_row(path, kind, line, 0)
    if not wrong:
        return NumberedRow(
            with_nulls(row) if request.nulls and kind == "csv" else row, None, number
        )
    if request.broken is None:
        line_number = number()
        if isinstance(line_number, int):
            _, wrong = _table_row(path, kind, line, line_number)
        raise DataError(
            f"{request.source.name}: {wrong}.",
            remedy="correct or delete this row, or set data.on_error=skip",
        )
    request.broken.append(f"{request.source.name}: {wrong}.")
    return None


def _table_row(path: Path, kind: str, line: _Line, number: int) -> tuple[Row, str]:
    """Return the row of a line, and what is wrong with it."""
    before = line_at(path, line.offset) - 1 if number else 0
    part = Part(
        index=0,
        url=str(path),
        format=kind,
        first_row=number,
        num_rows=1,
        offset=line.offset,
        num_bytes=len(line.text),
        line=before,
        name=path.name,
    )
    try:
        (table_row,) = read_part(part).rows
    except DataError:  # It has the number of the line in this part.
        return {}, f"the row at byte {line.offset:,} cannot be read as CSV"
    if not table_row.error or number:
        return table_row.values, table_row.error
    return table_row.values, f"the row at byte {line.offset:,} {_describe_problem(table_row.error)}"


def _describe_problem(error: str) -> str:
    """Return what is wrong, without a row's number and line."""
    return error.removeprefix("row 0 ").rpartition(" (")[0]


def place_of(path: Path, offset: int, count: Callable[[Path, int], int]) -> int | str:
    """Return the number that `count` finds of what begins at a byte; far away only the byte."""
    return count(path, offset) if offset <= _COUNTED_BYTES else f"at byte {offset:,}"


def line_at(path: Path, offset: int) -> int:
    """Return the number of the line that begins at a byte."""
    number, remaining = 1, offset
    with path.open("rb") as file:
        while remaining > 0 and (chunk := file.read(min(remaining, _CHUNK_BYTES))):
            number += chunk.count(b"\n")
            remaining -= len(chunk)
    return number


def _lines_before(path: Path, offset: int) -> int:
    """Return the number of a row of a CSV, whose first line is the header."""
    return line_at(path, offset) - 1


def _rows_before(path: Path, offset: int) -> int:
    """Return the number of a row of a text, in which empty lines are none."""
    number, position = 1, 0
    with path.open("rb") as file:
        for line in file:
            position += len(line)
            if position > offset:
                break
            number += not line.isspace()
    return number


# --- Rows from all over a Parquet file, by pages ---


WHOLE_ROWS = 50_000
_WHOLE_BYTES = 32 << 20
"""Uncompressed: a file up to here is read whole."""
_GROUPS = 16


def sample_parquet(path: Path, request: RowRequest, *, count: int) -> Sample | None:
    """Return the first rows of some row groups; None if the file is small, empty or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, for that would be the whole row group.
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            total = file.metadata.num_rows
            total = total if request.limit is None else min(total, request.limit)
            if not total or _is_small(file.metadata, total):
                return None
            rows, groups = _read_groups(file, total, count, request)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    num_groups = file.metadata.num_row_groups
    coverage = (
        "the first rows"
        if num_groups == 1
        else f"the first rows of {groups} of {num_groups:,} row groups"
    )
    return Sample(rows, total, where=coverage)


def _is_small(footer: Any, total: int) -> bool:
    groups = (footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    return total <= WHOLE_ROWS and sum(groups) <= _WHOLE_BYTES


def _read_groups(
    file: Any, total: int, count: int, request: RowRequest
) -> tuple[list[NumberedRow], int]:
    """Read the first rows of some row groups, spread over those that the run uses."""
    starts, passed = [], 0
    for group in range(file.num_row_groups):
        starts.append(passed)
        passed += file.metadata.row_group(group).num_rows
    used = [group for group, start in enumerate(starts) if start < total]
    sampled = [
        used[i * len(used) // min(_GROUPS, len(used))] for i in range(min(_GROUPS, len(used)))
    ]
    each = -(-count // len(sampled))
    columns = request.columns(file.schema_arrow.names)
    rows: list[NumberedRow] = []
    for group in sampled:
        first = starts[group]
        batches = file.iter_batches(
            batch_size=each, row_groups=[group], columns=columns, use_threads=False
        )
        batch = next(batches, None)
        read = [] if batch is None else batch.to_pylist()
        rows += [NumberedRow(row, first + n) for n, row in enumerate(read, start=1)]
    return [numbered for numbered in rows if (numbered.number or 0) <= total][:count], len(sampled)


# --- First rows of some parts of streamed data ---


_PARTS = 16
_HEAD_BYTES = 128 << 10
"""Bytes read of a part of a text, and more only if no row begins there."""


def sample_parts(request: RowRequest, *, count: int) -> Sample:
    """Return about `count` rows. Raises DataError."""
    plan = plan_stream(request.source)
    used = min(_PARTS, len(plan.parts))
    sampled = [plan.parts[piece * len(plan.parts) // used] for piece in range(used)]
    each = -(-count // used)
    heads = [_head(plan, part, each, request) for part in sampled]
    rows: list[NumberedRow] = []
    for part, part_rows in heads:
        for index in range(min(len(part_rows), each)):
            row = _read_row(plan, part, part_rows, index, request.broken)
            rows += [] if row is None else [row]
    total, is_exact = _estimated_rows(plan, heads)
    files = "1 file" if len(plan.files) == 1 else f"{len(plan.files):,} files"
    coverage = "" if len(rows) == total else f"from all over {files}"
    return Sample(rows, total, is_estimate=not is_exact, where=coverage)


def _head(
    plan: StreamPlan, part: StreamPart, each: int, request: RowRequest
) -> tuple[StreamPart, PartRows]:
    """Return the beginning of a part, and the rows that begin in it."""
    if plan.files[part.file].format not in LINES:
        return part, read_first(plan.files, part, rows=each, columns=request.columns)
    size = _HEAD_BYTES
    while size < part.num_bytes:
        head = replace(part, num_bytes=size)
        rows = read(plan.files, head)
        if len(rows):
            return head, rows
        size *= 8
    return part, read(plan.files, part)


def _estimated_rows(
    plan: StreamPlan, heads: Sequence[tuple[StreamPart, PartRows]]
) -> tuple[int, bool]:
    """Return the rows of an epoch, and whether their number is exact: lines are not counted."""
    counted = sum(stream_part.num_rows or 0 for stream_part in plan.parts)
    lines = [stream_part for stream_part in plan.parts if stream_part.num_rows is None]
    read_bytes = sum(part.num_bytes for part, _ in heads if part.num_rows is None)
    read_rows = sum(len(rows) for part, rows in heads if part.num_rows is None)
    all_bytes = sum(part.num_bytes for part in lines)
    if read_bytes == all_bytes:
        return counted + read_rows, True
    if not read_bytes:
        return counted, False
    return counted + round(read_rows / read_bytes * all_bytes), False


def _read_row(
    plan: StreamPlan, part: StreamPart, rows: PartRows, index: int, broken: list[str] | None
) -> NumberedRow | None:
    def label() -> str:
        return place(plan.files, part, index)

    try:
        return NumberedRow(rows.row(index, "?"), None, label)
    except DataError:
        if broken is None:
            rows.row(index, label())  # raises again, with its place
            raise
        broken.append(f"{label()} cannot be read")
        return None


WHOLE_BYTES = 16 * 1024**2
"""A file up to here is read whole: a fraction of a second."""
MOST_COMPARED = WHOLE_ROWS


def sample(request: RowRequest, *, count: int, seed: int) -> Sample:
    """Return all rows of a small source, else about `count` of it. Raises DataError.

    Of a large JSONL, CSV or text file lines are read at places that `seed` chooses, in equal
    pieces of it; of a large Parquet file the first rows of some row groups; of other streamed
    rows the first ones of some parts; of anything else the first rows.
    """
    path = request.source.path
    lines = None
    if path is not None and path.is_file():
        if path.suffix == ".parquet":
            return sample_parquet(path, request, count=count) or _whole(request)
        if path.stat().st_size <= WHOLE_BYTES:
            return _whole(request)
        if not _is_quick(request):
            lines = sample_lines(path, request, count=count, seed=seed)
    elif request.is_streamed:
        return sample_parts(request, count=count)
    return lines or _first(request, request.limit if _is_quick(request) else count)


def row_at(request: RowRequest, number: int) -> Row:
    """Return one row of a source by its number, from 1. Raises DataError."""
    local = request.source.path
    if request.is_streamed and (local is None or local.is_dir()):
        raise DataError(
            f"Rows of {request.source.name}, which are streamed, have no numbers.",
            remedy="name one of its files: `llmops data CONFIG data.train=FILE --row N`",
        )
    rows = islice(request.source.rows(nulls=request.nulls), request.limit)
    last = 0
    for last, row in enumerate(rows, start=1):
        if last == number:
            return row
    raise DataError(
        f"{request.source.name} has no row {number:,}: the run uses {last:,}.",
        remedy=f"choose a row from 1 to {last:,}" if last else "check the file",
    )


def _is_quick(request: RowRequest) -> bool:
    return request.limit is not None and request.limit <= MOST_COMPARED


def _load(request: RowRequest, limit: int | None) -> list[NumberedRow]:
    rows = request.source.load(limit, broken=request.broken, nulls=request.nulls)
    return [NumberedRow(row, number) for number, row in enumerate(rows, start=1)]


def _whole(request: RowRequest) -> Sample:
    rows = _load(request, request.limit)
    return Sample(rows, len(rows))


def _first(request: RowRequest, count: int | None) -> Sample:
    """Return the first rows, and whether these are all: one more is read."""
    rows = _load(request, None if count is None else count + 1)
    if count is None or len(rows) <= count:
        return Sample(rows, len(rows))
    if count == request.limit:
        return Sample(rows[:count], count)
    return Sample(rows[:count], request.limit, where="the first rows")
