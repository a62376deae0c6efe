"""A JSON file that is one list of objects. Read in chunks, so it may be larger than memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile
from llmops_kernel.tables.formats.lines import CHUNK_BYTES, json_row, opened, part_bytes, place
from llmops_kernel.tables.parts import Part, PartRows, Piece, TableRow

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)


def pieces(file: TableFile, part_rows: int, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Piece]:
    first, rows, end, line, first_line = 0, 0, 0, 0, 0
    with opened(file.url) as source:
        for begin, end, before, inside in _elements(source, file, chunk_bytes):
            if not rows:
                first, first_line = begin, line + before
            line += before + inside
            rows += 1
            if rows == part_rows:
                yield Piece(first, rows, end - first, first_line)
                rows = 0
    if rows:
        yield Piece(first, rows, end - first, first_line)


def _elements(
    source: Any, file: TableFile, chunk_bytes: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield begin, end and the lines before and inside of each element of the list.

    What is held is one element and a chunk. Raises DataError where the list does not end.
    """
    buffer, start, number = b"", 0, 0
    while chunk := source.read(max(chunk_bytes, len(buffer))):
        buffer += chunk
        cut = 0
        for begin, end, is_last in _scan(buffer, in_list=bool(number)):
            if end > begin:
                lines = buffer.count(b"\n", cut, begin), buffer.count(b"\n", begin, end)
                cut = end
                number += 1
                yield start + begin, start + end, *lines
            if is_last:
                return
        start += cut
        buffer = buffer[cut:]
    raise DataError(
        f"{file.name or file.url}, row {number}: the list does not end; a bracket or a quotation"
        " mark is missing in this row or after it.",
        remedy="write the file again, or as JSONL, where a broken row breaks no other",
    )


def _scan(buffer: bytes, *, in_list: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield begin, end and whether the list ends there, of each element that is whole.

    The empty one between two commas, or before the first, has its end where it begins.
    """
    depth, start = int(in_list), 0
    for match in _TOKEN.finditer(buffer):
        token = match.group()
        if token == b'"':  # A text that the end of the buffer cuts.
            return
        if token in b"[{":
            depth += 1
            if depth == 1:
                start = match.end()
        elif token in b"]}":
            depth -= 1
            if depth == 0:
                yield *_trimmed(buffer, start, match.start()), True
                return
        elif token == b"," and depth == 1:
            yield *_trimmed(buffer, start, match.start()), False
            start = match.end()


def _trimmed(buffer: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return begin and end without the white space around."""
    text = buffer[begin:end]
    begin += len(text) - len(text.lstrip())
    return begin, begin + len(text.strip())


def read(part: Part) -> PartRows:
    data = part_bytes(part) + b"]"
    rows: list[TableRow] = []
    line = done = 0
    for begin, end, _ in _scan(data, in_list=True):
        if end > begin and len(rows) < part.num_rows:
            line += data.count(b"\n", done, begin)
            done = begin
            rows.append(json_row(data[begin:end], part.first_row + len(rows), place(part, line)))
    return PartRows(rows)
