"""A row in each line: JSONL, and plain text. Empty lines do not make rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from llmops_kernel.tables.files import TableFile
from llmops_kernel.tables.formats.text import lines, opened, part_bytes, place
from llmops_kernel.tables.parts import Part, PartRows, Piece, TableRow, raw

TEXT = "text"
"""Column of the rows of a plain text, as `datasets` names it."""


def pieces(file: TableFile, part_rows: int) -> Iterator[Piece]:
    begin = position = rows = line = first_line = 0
    with opened(file.url) as source:
        for text in lines(source):
            position += len(text)
            rows += not text.isspace()
            line += 1
            if rows == part_rows:
                yield Piece(begin, rows, position - begin, first_line)
                begin, rows, first_line = position, 0, line
    if rows:
        yield Piece(begin, rows, position - begin, first_line)


def read_json(part: Part) -> PartRows:
    return _read(part, json_row)


def read_text(part: Part) -> PartRows:
    return _read(part, _text_row)


def _read(part: Part, make: Callable[[bytes, int, str], TableRow]) -> PartRows:
    rows: list[TableRow] = []
    for line, text in enumerate(part_bytes(part).split(b"\n")):
        if len(rows) == part.num_rows:
            break
        if text and not text.isspace():
            rows.append(make(text, part.first_row + len(rows), place(part, line)))
    return PartRows(rows)


def json_row(text: bytes, number: int, where: str) -> TableRow:
    """Return the row of a JSON object."""
    try:
        values = json.loads(text)
    except UnicodeDecodeError as error:
        return _broken(text, number, where, f"is not UTF-8: {error.reason}")
    except ValueError as error:
        return _broken(text, number, where, f"is not JSON: {error}")
    except RecursionError:
        return _broken(text, number, where, "is nested too deeply")
    if isinstance(values, dict):
        return TableRow(number, values)
    return _broken(text, number, where, f"is a JSON {type(values).__name__}, not an object")


def _text_row(text: bytes, number: int, where: str) -> TableRow:
    try:
        return TableRow(number, {TEXT: text.decode().removesuffix("\r")})
    except UnicodeDecodeError as error:
        return _broken(text, number, where, f"is not UTF-8: {error.reason}")


def _broken(text: bytes, number: int, where: str, what: str) -> TableRow:
    return TableRow(number, {}, f"row {number} {what} ({where})", raw(text))
