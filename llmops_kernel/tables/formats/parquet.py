"""Parquet: parts are cut at rows; only the row groups that a part has rows in are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile, open_url
from llmops_kernel.tables.parts import Part, PartRows, Piece, TableRow, unreadable


def pieces(file: TableFile, part_rows: int) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files, path = open_url(file.url)
    try:
        with files.open(path, "rb") as opened:
            total = pq.read_metadata(opened).num_rows
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file.url, error) from error
    for first in range(0, total, part_rows):
        yield Piece(first, min(part_rows, total - first))


def read(part: Part) -> PartRows:
    import pyarrow as pa

    try:
        opened, starts = _open(part.url)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part.url, error) from error
    first = bisect_right(starts, part.offset) - 1
    last = bisect_right(starts, part.offset + part.num_rows - 1) - 1
    tables = [_group(opened, group, part, starts) for group in range(first, last + 1)]
    table = pa.concat_tables(tables).slice(part.offset - starts[first], part.num_rows)

    def place(row: int) -> str:
        group = bisect_right(starts, part.offset + row) - 1
        inside = part.offset + row - starts[group]
        return f"{part.name or part.url}, row group {group}, row {inside:,} in it"

    return rows_of(table, part.first_row, place)


def _group(opened: Any, group: int, part: Part, starts: list[int]) -> Any:
    import pyarrow as pa

    try:
        return opened.read_row_group(group, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        end = starts[group] + opened.metadata.row_group(group).num_rows - 1
        raise DataError(
            f"{part.name or part.url}, row group {group} (rows {starts[group]:,} to {end:,}) cannot"
            f" be read: {error}",
            remedy="check that the file is whole, and that the cluster's nodes may read it",
        ) from error


@lru_cache(maxsize=4)
def _open(url: str) -> tuple[Any, list[int]]:
    """Return a file and the number of each row group's first row."""
    import pyarrow.parquet as pq

    files, path = open_url(url)
    opened = pq.ParquetFile(files.open(path, "rb"))
    footer = opened.metadata
    sizes = (footer.row_group(group).num_rows for group in range(footer.num_row_groups))
    return opened, list(accumulate(sizes, initial=0))[:-1]


# --- Rows of Arrow's columns ---


def rows_of(table: Any, first_row: int, place: Callable[[int], str]) -> PartRows:
    """Return the rows of a table; `place` says where the row of a number in it is."""
    try:
        columns = [column.to_pylist() for column in table.columns]
    except UnicodeDecodeError:
        return _row_by_row(table, first_row, place)
    names = table.column_names
    values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not columns:
        values = [{} for _ in range(table.num_rows)]
    return PartRows(
        [TableRow(first_row + n, row_values) for n, row_values in enumerate(values)], table
    )


def _row_by_row(table: Any, first_row: int, place: Callable[[int], str]) -> PartRows:
    """Read a table of which some text is not UTF-8, which Parquet and Arrow do not check."""
    rows = []
    for n in range(table.num_rows):
        number, values, bad = first_row + n, {}, []
        for name in table.column_names:
            try:
                values[name] = table[name][n].as_py()
            except UnicodeDecodeError:
                bad.append(name)
        error = f"row {number}: {', '.join(bad)} is not UTF-8 ({place(n)})" if bad else ""
        rows.append(TableRow(number, values, error))
    return PartRows(rows, table)
