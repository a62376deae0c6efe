"""Arrow's IPC files and streams; `datasets` saves its tables as streams.

A local file is mapped into memory, so nothing but the rows of a part is read. One behind a URL is
read as a whole, and kept while parts of it are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmops_kernel.tables.files import TableFile, open_url
from llmops_kernel.tables.formats.parquet import rows_of
from llmops_kernel.tables.parts import Part, PartRows, Piece, unreadable

_FILE_MAGIC = b"ARROW1"


def pieces(file: TableFile, part_rows: int) -> Iterator[Piece]:
    total = _table(file.url).num_rows
    for first in range(0, total, part_rows):
        yield Piece(first, min(part_rows, total - first))


def read(part: Part) -> PartRows:
    def place(row: int) -> str:
        return f"{part.name or part.url}, row {part.offset + row:,} in it"

    table = _table(part.url).slice(part.offset, part.num_rows)
    return rows_of(table, part.first_row, place)


def size(url: str) -> tuple[int, int]:
    """Return the rows and bytes of a local file's table, without reading them. Raises DataError."""
    import pyarrow as pa

    try:
        table = _opened(url)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(url, error) from error
    return table.num_rows, table.nbytes


def copied(url: str, first: int, count: int) -> Any:
    """Return rows of a local file as a table of their own. Raises DataError.

    A table that is mapped stays in the memory of the process as far as it was read.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    try:
        table = _opened(url).slice(first, count)
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return pa.ipc.open_stream(sink.getvalue()).read_all()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(url, error) from error


def _table(url: str) -> Any:
    import pyarrow as pa

    try:
        return _open(url)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(url, error) from error


@lru_cache(maxsize=2)
def _open(url: str) -> Any:
    return _opened(url)


def _opened(url: str) -> Any:
    import pyarrow as pa

    files, path = open_url(url)
    is_local = "://" not in url and Path(path).is_file()
    source = pa.memory_map(path) if is_local else pa.BufferReader(files.cat_file(path))
    is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    source.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).read_all()
