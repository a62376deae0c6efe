"""Reads a part's rows: they are decoded one by one, when they are needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile, open_url
from llmops_kernel.tables.formats import arrow
from llmops_kernel.tables.formats.lines import TEXT, not_json
from llmops_kernel.tables.parts import unreadable
from llmops_kernel.train.data.stream.order import StreamPart

LINES = frozenset({"jsonl", "text"})
"""Formats with a row in each line: their parts are ranges of bytes."""
_TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 22

Row = dict[str, Any]


class PartRows(Protocol):
    """The rows of a part, in their order in the file."""

    def __len__(self) -> int: ...

    def row(self, number: int, label: str) -> Row:
        """Return a row. Raises DataError, which calls the row by its label."""
        ...


def can_stream(file: TableFile) -> bool:
    """Return whether a part of a file can be read without what is before it.

    An Arrow file behind a URL would be read as a whole for each part.
    """
    is_local = "://" not in file.url
    return file.format in LINES or file.format == "parquet" or (file.format == "arrow" and is_local)


def read(files: Sequence[TableFile], part: StreamPart) -> PartRows:
    """Read a part. Raises DataError if its file is gone or is broken as a whole."""
    file = files[part.file]
    if file.format in LINES:
        lines = [line for line in _text(file, part)[1].split(b"\n") if not _is_blank(line)]
        return _Lines(lines) if file.format == "jsonl" else _Texts(lines)
    if file.format == "arrow":
        return _Table(arrow.copied(file.url, part.first_row, part.num_rows or 0))
    return _Table(_row_group(file, part))


def first_rows(files: Sequence[TableFile], part: StreamPart, count: int) -> PartRows:
    """Read at least the first rows of a part, and not much more. Raises DataError."""
    if not part.num_rows:
        return read(files, part)
    return read_first(files, part, rows=count, columns=lambda names: None)


def read_first(
    files: Sequence[TableFile],
    part: StreamPart,
    *,
    rows: int,
    columns: Callable[[Sequence[str]], list[str] | None],
) -> PartRows:
    """Read the first rows of a row group, and of its columns those that `columns` returns.

    Raises DataError. Only the pages that the rows are in are read; parts of other formats, which
    are small, as a whole.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = files[part.file]
    if file.format != "parquet":
        return read(files, part)
    store, path = open_url(file.url)
    try:
        with store.open(path, "rb") as opened:
            table = pq.ParquetFile(opened, pre_buffer=False, buffer_size=_TAIL_BYTES)
            names = columns(table.schema_arrow.names)
            batches = table.iter_batches(
                batch_size=rows, row_groups=[part.offset], columns=names, use_threads=False
            )
            return _Table(pa.Table.from_batches([next(batches)]))
    except (pa.ArrowException, OSError) as error:
        raise _bad_group(file, part, error) from error


def place(files: Sequence[TableFile], part: StreamPart, row: int) -> str:
    """Return where a row is, for people: `train.jsonl, row 17`. Blank lines count, as in editors.

    Lines before it are counted in local files; elsewhere its first byte is named.
    """
    file = files[part.file]
    if file.format not in LINES:
        group = f" (row group {part.offset})" if file.format == "parquet" else ""
        return f"{file.name}, row {part.first_row + row + 1:,}{group}"
    begin, text = _text(file, part)
    lines = text.split(b"\n")
    line_number = [number for number, line in enumerate(lines) if not _is_blank(line)][row]
    local = Path(file.url)
    if local.is_file():
        return f"{file.name}, row {_newlines(local, begin) + line_number + 1:,}"
    offset = begin + sum(len(line) + 1 for line in lines[:line_number])
    return f"{file.name}, the row at byte {offset:,}"


def _is_blank(line: bytes) -> bool:
    return not line or line.isspace()


def _newlines(path: Path, end: int) -> int:
    """Return the number of line ends before a byte of a local file."""
    count, remaining = 0, end
    with path.open("rb") as file:
        while remaining and (chunk := file.read(min(_CHUNK_BYTES, remaining))):
            count += chunk.count(b"\n")
            remaining -= len(chunk)
    return count


def _text(file: TableFile, part: StreamPart) -> tuple[int, bytes]:
    """Return the lines that begin in a part, and the first one's place in the file."""
    files, path = open_url(file.url)
    begin = max(0, part.offset - 1)
    end = min(part.offset + part.num_bytes, file.size_bytes)
    try:
        data: bytes = files.cat_file(path, start=begin, end=end)
        if part.offset:
            # The byte before tells whether a line begins with the part.
            first = data.find(b"\n") + 1
            if not first:
                return end, b""
            begin, data = begin + first, data[first:]
        while data and not data.endswith(b"\n") and end < file.size_bytes:
            tail = files.cat_file(path, start=end, end=min(end + _TAIL_BYTES, file.size_bytes))
            if not tail:
                break
            data += tail[: tail.find(b"\n") + 1] or tail
            end += len(tail)
    except OSError as error:
        raise unreadable(file.url, error) from error
    return begin, data


class _Lines:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, number: int, label: str) -> Row:
        try:
            row = json.loads(self._lines[number])
        except (ValueError, RecursionError) as error:
            problem, remedy = not_json(self._lines[number], error)
            raise DataError(f"Row {label} is {problem}.", remedy=remedy) from error
        if not isinstance(row, dict):
            raise DataError(
                f"Row {label} is a {type(row).__name__} where an object is needed.",
                remedy='write the row as {"field": value, ...}',
            )
        return row


class _Texts:
    """Rows with the column that `datasets` gives them, too."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, number: int, label: str) -> Row:
        try:
            return {TEXT: self._lines[number].decode().removesuffix("\r")}
        except UnicodeDecodeError as error:
            raise DataError(
                f"Row {label} is not UTF-8 ({error.reason}).", remedy="write the text as UTF-8"
            ) from error


class _Table:
    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def row(self, number: int, label: str) -> Row:
        try:
            row: Row = self._table.slice(number, 1).to_pylist()[0]
        except UnicodeDecodeError as error:  # Parquet and Arrow do not check it.
            raise DataError(
                f"Row {label} has text that is not UTF-8 ({error.reason}).",
                remedy="write the table's text as UTF-8",
            ) from error
        return row


def _row_group(file: TableFile, part: StreamPart) -> Any:
    import pyarrow as pa

    try:
        return _open_parquet(file).read_row_group(part.offset, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise _bad_group(file, part, error) from error


def _bad_group(file: TableFile, part: StreamPart, error: Exception) -> DataError:
    return DataError(
        f"{file.name}, row group {part.offset} (rows {part.first_row + 1:,} to"
        f" {part.first_row + (part.num_rows or 0):,}) cannot be read: {error}",
        remedy="check that the file is whole, and that the cluster's nodes may read it",
    )


@lru_cache(maxsize=4)
def _open_parquet(file: TableFile) -> Any:
    import pyarrow.parquet as pq

    files, path = open_url(file.url)
    return pq.ParquetFile(files.open(path, "rb"), pre_buffer="://" in file.url)
