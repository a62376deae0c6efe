"""Reads the rows of a part. A broken row becomes a row with an error, never an exception."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from llmops_kernel.tables.files import open_url
from llmops_kernel.tables.parts import Part, unreadable

_SHOWN = 200


@dataclass(slots=True)
class TableRow:
    """One row of the table."""

    number: int
    """Its number among all rows of the table, from 0."""
    values: dict[str, Any]
    error: str = ""
    """Why it could not be read."""
    raw: str = ""
    """What was there instead, for a row that could not be read."""


@dataclass
class PartRows:
    """The rows of a part, with their columns as Arrow where the file has them."""

    rows: list[TableRow]
    table: Any = field(default=None)
    """pyarrow.Table of Parquet input; None for JSONL."""


def read_part(part: Part) -> PartRows:
    """Return the rows of a part, in order. Raises DataError if the file is gone or broken."""
    return _read_jsonl(part) if part.format == "jsonl" else _read_parquet(part)


def _read_jsonl(part: Part) -> PartRows:
    files, path = open_url(part.url)
    try:
        with files.open(path, "rb") as opened:
            opened.seek(part.offset)
            data = opened.read(part.num_bytes)
    except OSError as error:
        raise unreadable(part.url, error) from error
    lines = [line for line in data.split(b"\n") if line and not line.isspace()]
    rows = [_json_row(line, part.first_row + n) for n, line in enumerate(lines[: part.num_rows])]
    return PartRows(rows)


def _json_row(line: bytes, number: int) -> TableRow:
    try:
        values = json.loads(line)
    except UnicodeDecodeError as error:
        return TableRow(number, {}, f"row {number} is not UTF-8: {error.reason}", _raw(line))
    except ValueError as error:
        return TableRow(number, {}, f"row {number} is not JSON: {error}", _raw(line))
    except RecursionError:
        return TableRow(number, {}, f"row {number} is nested too deeply", _raw(line))
    if isinstance(values, dict):
        return TableRow(number, values)
    what = type(values).__name__
    return TableRow(number, {}, f"row {number} is a JSON {what}, not an object", _raw(line))


def _raw(line: bytes) -> str:
    return line.decode(errors="replace").strip()


def _read_parquet(part: Part) -> PartRows:
    import pyarrow as pa

    try:
        table = _slice(part)
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable(part.url, error) from error
    try:
        columns = [column.to_pylist() for column in table.columns]
    except UnicodeDecodeError:
        return _row_by_row(table, part.first_row)
    names = table.column_names
    values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not columns:
        values = [{} for _ in range(table.num_rows)]
    rows = [TableRow(part.first_row + n, one) for n, one in enumerate(values)]
    return PartRows(rows, table)


def _row_by_row(table: Any, first_row: int) -> PartRows:
    """Read a table of which some text is not UTF-8, which Parquet does not check."""
    rows = []
    for n in range(table.num_rows):
        number, values, bad = first_row + n, {}, []
        for name in table.column_names:
            try:
                values[name] = table[name][n].as_py()
            except UnicodeDecodeError:
                bad.append(name)
        error = f"row {number}: {', '.join(bad)} is not UTF-8" if bad else ""
        rows.append(TableRow(number, values, error))
    return PartRows(rows, table)


def _slice(part: Part) -> Any:
    """Read only the row groups that the part has rows in."""
    opened = _open_parquet(part.url)
    wanted: list[int] = []
    skip = passed = 0
    end = part.offset + part.num_rows
    for group in range(opened.num_row_groups):
        size = opened.metadata.row_group(group).num_rows
        if passed + size > part.offset and passed < end:
            if not wanted:
                skip = part.offset - passed
            wanted.append(group)
        passed += size
    return opened.read_row_groups(wanted, use_threads=False).slice(skip, part.num_rows)


@lru_cache(maxsize=4)
def _open_parquet(url: str) -> Any:
    import pyarrow.parquet as pq

    files, path = open_url(url)
    return pq.ParquetFile(files.open(path, "rb"))
