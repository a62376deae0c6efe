"""A row in each line: JSONL, and plain text. Empty lines do not make rows."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llmops_kernel.tables.files import TableFile, open_url
from llmops_kernel.tables.parts import Part, PartRows, Piece, TableRow, raw, unreadable

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


def json_row(text: bytes, number: int, location: str) -> TableRow:
    """Return the row of a JSON object."""
    try:
        values = json.loads(text)
    except UnicodeDecodeError as error:
        return _broken(text, number, location, f"is not UTF-8: {error.reason}")
    except ValueError as error:
        return _broken(text, number, location, f"is not JSON: {error}")
    except RecursionError:
        return _broken(text, number, location, "is nested too deeply")
    if isinstance(values, dict):
        return TableRow(number, values)
    return _broken(text, number, location, f"is a JSON {type(values).__name__}, not an object")


def _text_row(text: bytes, number: int, location: str) -> TableRow:
    try:
        return TableRow(number, {TEXT: text.decode().removesuffix("\r")})
    except UnicodeDecodeError as error:
        return _broken(text, number, location, f"is not UTF-8: {error.reason}")


def _broken(text: bytes, number: int, location: str, problem: str) -> TableRow:
    return TableRow(number, {}, f"row {number} {problem} ({location})", raw(text))


# --- Errors of lines that are no JSON: often the file is no text, or no UTF-8 ---


_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def not_json(line: bytes, error: Exception) -> tuple[str, str]:
    """Return words that follow "row 5 is", and what to do."""
    if line.startswith(_GZIP):
        return "compressed with gzip", "unpack the file"
    if line.startswith(_UTF_16):
        return "UTF-16, not UTF-8", "save the file as UTF-8"
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        byte = f"byte {wrong.start + 1} of the row is 0x{line[wrong.start]:02x}"
        return f"not UTF-8 ({byte})", "save the file as UTF-8; unpack it if it is compressed"
    return f"not valid JSON ({error})", "each line must be one JSON object; fix or delete that line"


# --- Code that all text formats share: bytes of a file ---


CHUNK_BYTES = 1 << 22


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """Open a file to read its bytes. Raises DataError, also for errors in the block."""
    files, path = open_url(url)
    try:
        with files.open(path, "rb") as file:
            yield file
    except OSError as error:
        raise unreadable(url, error) from error


def lines(file: Any, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file, each with its end. A remote file's own iterator reads bytewise."""
    rest = b""
    while chunk := file.read(chunk_bytes):
        pieces = (rest + chunk).split(b"\n")
        rest = pieces.pop()
        for line in pieces:
            yield line + b"\n"
    if rest:
        yield rest


def part_bytes(part: Part) -> bytes:
    """Return the bytes of a part. Raises DataError."""
    with opened(part.url) as file:
        file.seek(part.offset)
        data: bytes = file.read(part.num_bytes)
    return data


def place(part: Part, line: int) -> str:
    """Return where a row is: the file, and its line in it, counted as editors do."""
    return f"{part.name or part.url}, line {part.line + line + 1:,}"
