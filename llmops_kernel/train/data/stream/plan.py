"""The plan of a stream: the files of a source and their parts, found without reading the rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.store.files import private_folder, write_whole
from llmops_kernel.tables.files import TableFile, open_url
from llmops_kernel.tables.formats import arrow
from llmops_kernel.tables.parts import unreadable
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.reader import LINES, can_stream, read

DIVISION = 2
"""Version of the division of files into parts. A run that resumes keeps that of its checkpoint: the
same rows are other parts in another one. In the first one parts had up to 4 MiB."""
_MOST_PART_BYTES = 512 << 10
"""A window of 32 MiB is of 64 parts from all over the data: where the files are sorted by class, it
has rows of all of ten classes."""
_LARGEST_PART_BYTES = 4 << 20
_MOST_PARTS = 1 << 18
"""Each worker holds all of them in memory: parts of more than 128 GiB are larger."""
_LEAST_PART_BYTES = 1 << 10
_PARTS_OF_SMALL_DATA = 256
"""Parts of data of less than 128 MiB: so many that they can be dealt evenly to a few workers."""
_COUNTED_BYTES = 4 << 20
"""Size up to which each of several sources is read whole: a part of it would be much of it."""
_SAMPLES = 16
"""Parts from which the rows of texts are estimated."""
_READERS = 8
"""Footers that are read at a time."""


@dataclass(frozen=True)
class StreamPlan:
    """The parts of a source; the same on all workers and in all attempts."""

    source: str
    files: tuple[TableFile, ...]
    parts: tuple[StreamPart, ...]
    fingerprint: str
    """Hash of names and versions of the files, and of the division."""
    division: int = DIVISION


def plan_stream(
    source: Source,
    *,
    cache: Path | None = None,
    counted: bool = False,
    division: int = DIVISION,
) -> StreamPlan:
    """Return the parts of a source. Reads the footers of Parquet files, and nothing of texts.

    `counted`: also count the lines of texts of a few MiB, so that each of their rows can be dealt.
    `division`: of the checkpoint that a run resumes from. Raises DataError.
    """
    files = tuple(source.files)
    for file in files:
        if not can_stream(file):
            kind = f"a {file.format} file" if file.format != "arrow" else "an Arrow file at a URL"
            raise DataError(
                f"{file.name} of {source.name} is {kind}, which is not streamed.",
                remedy="write it as Parquet, or set data.streaming=false",
            )
    versions = [[file.name, file.format, file.version] for file in files]
    mark = hashlib.sha256(json.dumps([division, versions]).encode()).hexdigest()[:16]
    groups = _load(cache, mark, "groups") if cache else None
    if groups is None:
        groups = _footers(files, division)
        if cache and groups:
            _save(cache, mark, "groups", groups)
    parts = tuple(parts_of(files, groups, division=division))
    if counted and sum(file.size_bytes for file in files) <= _COUNTED_BYTES:
        parts = tuple(_counted(files, parts))
    if not parts:
        raise DataError(f"{source.name} has no rows.", remedy="check data.train in the config")
    return StreamPlan(source.name, files, parts, mark, division)


def _counted(files: Sequence[TableFile], parts: Sequence[StreamPart]) -> Iterator[StreamPart]:
    for part in parts:
        rows = part.num_rows
        yield part if rows is not None else replace(part, num_rows=len(read(files, part)))


def _footers(files: Sequence[TableFile], division: int) -> dict[str, list[list[int]]]:
    """Return rows and bytes of each row group, by the number of the file, which has no lines."""
    tables = [number for number, file in enumerate(files) if file.format not in LINES]
    if not tables:
        return {}
    size = part_bytes(sum(files[number].size_bytes for number in tables), division=division)
    with ThreadPoolExecutor(_READERS) as pool:
        row_groups = pool.map(lambda number: _row_groups(files[number], size), tables)
        return {str(number): groups for number, groups in zip(tables, row_groups, strict=True)}


def _row_groups(file: TableFile, size: int) -> list[list[int]]:
    """Return the row groups; rows of Arrow files are divided into groups of about `size` bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.format == "arrow":
        rows, num_bytes = arrow.size(file.url)
        each = max(1, rows * size // max(1, num_bytes))
        counts = [min(each, rows - first) for first in range(0, rows, each)]
        return [[count, num_bytes * count // rows] for count in counts]
    files, path = open_url(file.url)
    try:
        with files.open(path, "rb") as opened:
            footer = pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file.url, error) from error
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [[group.num_rows, group.total_byte_size] for group in groups]


def parts_of(
    files: Sequence[TableFile], groups: Mapping[str, Any], *, division: int = DIVISION
) -> Iterator[StreamPart]:
    """Divide files into parts: those of lines by their sizes alone, others by their `groups`."""
    lines = sum(file.size_bytes for file in files if file.format in LINES)
    size = part_bytes(lines, division=division)
    index = 0
    for number, file in enumerate(files):
        first_row = 0
        if file.format in LINES:
            for offset in range(0, file.size_bytes, size):
                num_bytes = min(size, file.size_bytes - offset)
                yield StreamPart(index, number, offset, num_bytes)
                index += 1
            continue
        for group, (num_rows, num_bytes) in enumerate(groups[str(number)]):
            yield StreamPart(index, number, group, num_bytes, num_rows, first_row)
            first_row += num_rows
            index += 1


def part_bytes(total: int, *, division: int = DIVISION) -> int:
    """Return the size of the parts of files of `total` bytes that have no row groups."""
    target = max(_LEAST_PART_BYTES, total // _PARTS_OF_SMALL_DATA)
    if division == 1:
        return min(_LARGEST_PART_BYTES, target)
    return min(_LARGEST_PART_BYTES, max(-(-total // _MOST_PARTS), min(_MOST_PART_BYTES, target)))


def load_counts(plan: StreamPlan, cache: Path) -> dict[int, int]:
    """Return the rows of those JSONL parts that an earlier run or attempt has read, by part."""
    counts = _load(cache, plan.fingerprint, "counts") or {}
    return {int(part): rows for part, rows in counts.items()}


def save_counts(plan: StreamPlan, counts: Mapping[int, int], cache: Path) -> None:
    """Keep the rows of JSONL parts for the next attempt or run; an error is ignored."""
    _save(cache, plan.fingerprint, "counts", dict(counts))


def was_checked(plan: StreamPlan, how: str, cache: Path) -> bool:
    """Return whether an earlier run or attempt has read all rows so and none was broken."""
    return _load(cache, plan.fingerprint, f"checked-{how}") is not None


def note_checked(plan: StreamPlan, how: str, cache: Path) -> None:
    """Keep that no row is broken, as read in this way, until a file changes."""
    _save(cache, plan.fingerprint, f"checked-{how}", True)


def estimated_rows(plan: StreamPlan, counts: MutableMapping[int, int]) -> tuple[int, bool]:
    """Return the rows of an epoch, and whether their number is exact.

    Lines that were not counted are estimated from their bytes, by parts all over the data, whose
    rows are added to `counts`. Raises DataError.
    """
    unknown = [
        stream_part
        for stream_part in plan.parts
        if stream_part.num_rows is None and stream_part.index not in counts
    ]
    sampled = _spread(unknown, _SAMPLES)
    with ThreadPoolExecutor(_READERS) as pool:
        for part, rows in zip(
            sampled, pool.map(lambda part: len(read(plan.files, part)), sampled), strict=True
        ):
            counts[part.index] = rows
    num_rows = sum(
        counts.get(stream_part.index, 0) if stream_part.num_rows is None else stream_part.num_rows
        for stream_part in plan.parts
    )
    if len(sampled) == len(unknown):
        return num_rows, True
    mean = sum(counts[part.index] for part in sampled) / sum(part.num_bytes for part in sampled)
    rest = sum(part.num_bytes for part in unknown if part.index not in counts)
    return num_rows + round(mean * rest), False


def _spread(parts: Sequence[StreamPart], count: int) -> list[StreamPart]:
    if len(parts) <= count:
        return list(parts)
    return [parts[(2 * n + 1) * len(parts) // (2 * count)] for n in range(count)]


def _file(cache: Path, mark: str, name: str) -> Path:
    return cache / "streams" / f"{mark}-{name}.json"


def _load(cache: Path, mark: str, name: str) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(_file(cache, mark, name).read_bytes())
    return None


def _save(cache: Path, mark: str, name: str, value: Any) -> None:
    path = _file(cache, mark, name)
    with suppress(OSError):
        private_folder(path.parent)
        write_whole(path, json.dumps(value).encode())
