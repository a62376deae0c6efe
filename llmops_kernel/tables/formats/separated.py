"""CSV with a header, as in RFC 4180; `.tsv` is separated by tabs. All values are texts."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile
from llmops_kernel.tables.formats.lines import CHUNK_BYTES, lines, opened, part_bytes, place
from llmops_kernel.tables.parts import Part, PartRows, Piece, TableRow

_MOST_FIELD_BYTES = 64 << 20
"""Python's own limit is 128 KiB; without one, an unclosed quotation mark reads the whole file."""
_BOM = "\ufeff"


def pieces(file: TableFile, part_rows: int, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Piece]:
    with opened(file.url) as source:
        reader = _Reader(lines(source, chunk_bytes), file.url, file.name)
        next(iter(reader), None)  # The header.
        begin, first_line, rows = reader.position, reader.line, 0
        for _ in reader:
            rows += 1
            if rows == part_rows:
                yield Piece(begin, rows, reader.position - begin, first_line)
                begin, first_line, rows = reader.position, reader.line, 0
    if rows:
        yield Piece(begin, rows, reader.position - begin, first_line)


def read(part: Part) -> PartRows:
    header = _header(part.url, part.name)
    rows: list[TableRow] = []
    line = 0
    reader = _Reader(BytesIO(part_bytes(part)), part.url, part.name)
    for values in reader:
        if len(rows) < part.num_rows:
            rows.append(_row(values, header, part.first_row + len(rows), place(part, line)))
        line = reader.line
    return PartRows(rows)


def _row(values: list[str], header: tuple[str, ...], number: int, location: str) -> TableRow:
    text = ",".join(values)
    if len(values) != len(header):
        problem = (
            f"row {number} has {len(values)} values, and the header {len(header)} ({location})"
        )
        return TableRow(number, {}, problem, text)
    if not text.isascii() and any("\udc80" <= letter <= "\udcff" for letter in text):
        readable = text.encode(errors="surrogateescape").decode(errors="replace")
        return TableRow(number, {}, f"row {number} is not UTF-8 ({location})", readable)
    return TableRow(number, dict(zip(header, values, strict=True)))


@lru_cache(maxsize=8)
def _header(url: str, name: str) -> tuple[str, ...]:
    with opened(url) as source:
        return tuple(next(iter(_Reader(lines(source), url, name)), ()))


class _Reader:
    """Reads rows, and knows the byte and the line that the next one begins at."""

    def __init__(self, lines: Iterable[bytes], url: str, name: str) -> None:
        self._lines, self._name = lines, name or url
        self._separator = "\t" if url.endswith(".tsv") else ","
        self.position = self.line = 0

    def __iter__(self) -> Iterator[list[str]]:
        """Yield rows; empty lines make none. Raises DataError, for no row after it is found."""
        csv.field_size_limit(_MOST_FIELD_BYTES)
        try:
            for row in csv.reader(self._texts(), delimiter=self._separator, strict=True):
                if row:
                    yield row
        except csv.Error as error:
            raise DataError(
                f"{self._name} cannot be read as CSV, up to line {self.line:,}: {error}.",
                remedy='close each quotation mark, and write one inside of a value as ""',
            ) from error

    def _texts(self) -> Iterator[str]:
        for line in self._lines:
            text = line.decode(errors="surrogateescape")
            if not self.position:
                text = text.removeprefix(_BOM)
            self.position += len(line)
            self.line += 1
            yield text
