"""Reads a bounded number of rows from all over a source."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.store.files import find
from llmops_kernel.train.data.sources import Row, json_row, load_rows, open_rows
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.plan import StreamPlan, estimated_rows, plan_stream
from llmops_kernel.train.data.stream.reader import PartRows, place, read

WHOLE_BYTES = 16 * 1024**2
"""A file up to here is read whole: a fraction of a second."""
MOST_COMPARED = 50_000
_GROUPS = 16
_PARTS = 40
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class Numbered:
    row: Row
    number: int | None
    """From 1; None where it is not known."""
    find_number: Callable[[], int | str] | None = None
    """Finds it out, or its file too, which may take seconds."""


@dataclass(frozen=True)
class Sample:
    """Rows of a source in their order."""

    rows: list[Numbered]
    total: int | None
    """Rows that the run uses; None if that is not known."""
    is_estimate: bool = False
    where: str = ""
    """Which rows these are, in words; empty for all of them."""


@dataclass(frozen=True)
class Wanted:
    """The rows of a source that a run uses."""

    source: str
    roots: Sequence[Path]
    split: str
    limit: int | None
    is_streamed: bool = False
    """Whether the run streams them: they may be several files."""
    broken: list[str] | None = None
    """What is wrong with rows that cannot be read, if the run leaves them out."""


def sample(wanted: Wanted, *, count: int, seed: int) -> Sample:
    """Return all rows of a small source, else about `count` of it. Raises DataError.

    Of a large JSONL file lines are read at places that `seed` chooses, one in each of `count`
    equal pieces; of a large Parquet file the first rows of some row groups; of other streamed
    rows the first ones of some parts; of anything else the first rows.
    """
    path = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    if path is not None and path.is_file():
        if path.suffix == ".parquet":
            return _of_parquet(path, wanted, count)
        if path.stat().st_size <= WHOLE_BYTES:
            return _whole(wanted)
        if path.suffix in {".jsonl", ".ndjson"} and not _is_quick(wanted):
            return _of_lines(path, wanted, count, seed)
    elif wanted.is_streamed:
        return _of_parts(wanted, count)
    return _first(wanted, wanted.limit if _is_quick(wanted) else count)


def row_at(wanted: Wanted, number: int) -> Row:
    """Return one row of a source by its number, from 1. Raises DataError."""
    local = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    if wanted.is_streamed and (local is None or local.is_dir()):
        raise DataError(
            f"Rows of {wanted.source}, which are streamed, have no numbers.",
            remedy="name one of its files: `llmops data CONFIG data.train=FILE --row N`",
        )
    rows = islice(open_rows(wanted.source, roots=wanted.roots, split=wanted.split), wanted.limit)
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
        wanted.source, roots=wanted.roots, split=wanted.split, limit=limit, broken=wanted.broken
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


def _of_lines(path: Path, wanted: Wanted, count: int, seed: int) -> Sample:
    size = path.stat().st_size
    lines = list(_spread_lines(path, size, count, random.Random(seed)))
    if not lines:
        return _first(wanted, count)
    mean = sum(len(line) for _, line in lines) / len(lines)
    total = round(size / mean)
    if wanted.limit is not None and wanted.limit < total:
        total = wanted.limit
        lines = [(at, line) for at, line in lines if at < wanted.limit * mean]
    found = (_numbered(path, wanted, at, line) for at, line in lines)
    rows = [one for one in found if one is not None]
    return Sample(rows, total, is_estimate=True, where="from all over the file")


def _spread_lines(
    path: Path, size: int, count: int, chance: random.Random
) -> Iterator[tuple[int, bytes]]:
    """Yield position and bytes of a line of each of `count` equal pieces, none twice."""
    last = -1
    with path.open("rb") as file:
        for piece in range(count):
            place = int((piece + chance.random()) * size / count) if piece else 0
            if place:
                file.seek(place - 1)
                file.readline()
                place = file.tell()
            else:
                file.seek(0)
            line = file.readline()
            if place > last and line.strip():
                last = place
                yield place, line


def _numbered(path: Path, wanted: Wanted, at: int, line: bytes) -> Numbered | None:
    def number() -> int:
        return 1 if at == 0 else _row_number(path, at)

    try:
        row = json_row(line, 1, wanted.source)
    except DataError as error:
        if wanted.broken is not None:
            wanted.broken.append(error.message)
            return None
        row = json_row(line, number(), wanted.source)  # raises again, with the right number
    return Numbered(row, 1 if at == 0 else None, number)


def _row_number(path: Path, at: int) -> int:
    """Return the number of the row that begins at a byte."""
    number, left = 1, at
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            number += chunk.count(b"\n")
            left -= len(chunk)
    return number


def _of_parts(wanted: Wanted, count: int) -> Sample:
    plan = plan_stream(wanted.source, roots=wanted.roots)
    total, is_exact = estimated_rows(plan, {})
    used = min(_PARTS, len(plan.parts))
    chosen = [plan.parts[piece * len(plan.parts) // used] for piece in range(used)]
    rows: list[Numbered] = []
    for part in chosen:
        found = read(plan.files, part)
        for index in range(min(len(found), -(-count // used))):
            one = _of_part(plan, part, found, index, wanted.broken)
            rows += [] if one is None else [one]
    files = "1 file" if len(plan.files) == 1 else f"{len(plan.files):,} files"
    where = "" if len(rows) == total else f"from all over {files}"
    return Sample(rows, total, is_estimate=not is_exact, where=where)


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


def _of_parquet(path: Path, wanted: Wanted, count: int) -> Sample:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            total = file.metadata.num_rows
            total = total if wanted.limit is None else min(total, wanted.limit)
            if total <= MOST_COMPARED and path.stat().st_size <= 4 * WHOLE_BYTES:
                return _whole(wanted)
            if not total:
                return _whole(wanted)  # raises, as the run would
            rows, groups = _of_groups(file, total, count)
    except (pa.ArrowException, OSError):
        return _whole(wanted)
    of = file.metadata.num_row_groups
    where = "the first rows" if of == 1 else f"the first rows of {groups} of {of:,} row groups"
    return Sample(rows, total, where=where)


def _of_groups(file: Any, total: int, count: int) -> tuple[list[Numbered], int]:
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
    rows: list[Numbered] = []
    for group in chosen:
        first = starts[group]
        batches = file.iter_batches(batch_size=each, row_groups=[group], use_threads=False)
        found = next(batches, None)
        read = [] if found is None else found.to_pylist()
        rows += [Numbered(row, first + n) for n, row in enumerate(read, start=1)]
    return [one for one in rows if (one.number or 0) <= total][:count], len(chosen)
