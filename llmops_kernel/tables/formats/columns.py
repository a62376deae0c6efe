"""From Arrow's columns to rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmops_kernel.tables.parts import PartRows, TableRow


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
    return PartRows([TableRow(first_row + n, one) for n, one in enumerate(values)], table)


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
