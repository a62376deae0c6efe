"""Read a data file's rows once and report the broken ones by number."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.config.problems import Problem
from llmops_kernel.config.row_formats import (
    Fault,
    Row,
    keys,
    kind,
    recognised,
    renamed,
    shaped,
    wanted,
)

_SHOWN = 3
_LONGEST_COLUMN = 1000
_MOST_BYTES = 64 * 1024 * 1024  # half a second of reading; larger files are streamed in a run
_FIRST_BYTES = 8 * 1024 * 1024  # of larger files: the rows of a sample are tried by Check
_MOST_LIST_BYTES = 64 * 1024 * 1024  # a list is held in memory as a whole
_NO_TEXT = {
    b"\x1f\x8b": ("compressed with gzip", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it"),
    b"PK\x03\x04": ("a zip archive", "unpack it"),
    codecs.BOM_UTF16_LE: ("UTF-16, not UTF-8", "save it as UTF-8"),
    codecs.BOM_UTF16_BE: ("UTF-16, not UTF-8", "save it as UTF-8"),
}
_NO_ANSWER = "end held-out chats with the answer, or set evaluation.generate=false"


@dataclass(frozen=True)
class RowRules:
    """The requirements for the rows of a source."""

    row_format: str | None = "auto"
    """The format as in `data.format`; None if a hook formats the rows: any object is allowed."""
    limit: int | None = None
    """Rows that are used; what comes after them is not looked at."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """`data.columns`: field of the format, column of the data."""
    skips: bool = False
    """Broken rows are skipped in the run: only a file without a sound one is a problem."""
    answers: bool = False
    """Each chat must end with an answer, to compare a generated one with."""


def check_rows(name: str, source: str, path: Path, rules: RowRules) -> Iterator[Problem]:
    """Yield the problems of a data file; `name` is the field that names it."""
    if path.suffix == ".parquet":
        yield from _check_parquet(name, source, path, rules)
        return
    if path.suffix != ".arrow" and (fault := _no_text(path)):
        yield _problem(name, source, *fault)
        return
    if path.suffix in {".csv", ".tsv", ".txt", ".arrow"}:
        yield from _check_header(name, source, path, rules)
        return
    is_list = path.suffix == ".json" and _begins_list(path)
    if is_list and path.stat().st_size > _MOST_LIST_BYTES:
        return  # the workers check it
    broken: dict[Fault, Problem] = {}
    num_broken = num_rows = 0
    with path.open("rb") as file:
        parsed = _listed(file) if is_list else _parsed(file, most=_most_bytes(path))
        for number, row, fault in islice(parsed, rules.limit):
            num_rows += 1
            fault = fault or _shape_fault(row, rules)
            if fault is None:
                continue
            num_broken += 1
            if len(broken) < _SHOWN and fault not in broken:
                message, hint = fault
                line = None if is_list else number
                broken[fault] = _problem(name, source, f"row {number}: {message}", hint, line)
            if num_broken == 1 and not is_list and _is_document(path):
                yield _document(name, source)
                return
    if rules.skips and num_broken < num_rows:
        return
    yield from _counted(broken, num_broken=num_broken, num_rows=num_rows)
    if num_rows == 0:
        yield _problem(
            name, source, "has no rows, only blank lines", "write one JSON object per line"
        )


def _counted(
    broken: Mapping[Fault, Problem], *, num_broken: int, num_rows: int
) -> Iterator[Problem]:
    """Yield the first row with each fault; the last one says how many rows are broken."""
    found = list(broken.values())
    if num_broken > len(found):
        more = f" ({num_broken:,} of {num_rows:,} rows are broken)"
        found[-1] = replace(found[-1], message=found[-1].message + more)
    yield from found


def _no_text(path: Path) -> Fault | None:
    """Return what a file is that has no rows of text at all."""
    with path.open("rb") as file:
        beginning = file.read(4)
    for mark, (what, hint) in _NO_TEXT.items():
        if beginning.startswith(mark):
            return Fault(f"the file is {what}", hint)
    return None


def _most_bytes(path: Path) -> int:
    return _MOST_BYTES if path.stat().st_size <= _MOST_BYTES else _FIRST_BYTES


def _parsed(lines: Iterator[bytes] | Any, *, most: int) -> Iterator[tuple[int, Any, Fault | None]]:
    """Number (counted with blank lines, as editors do), row, what is wrong with its JSON."""
    loads, read = json.loads, 0
    for number, line in enumerate(lines, start=1):
        read += len(line)
        if read > most:
            return
        if line.isspace():
            continue
        try:
            row = loads(line)
        except (ValueError, RecursionError) as error:
            yield number, None, _json_fault(line, error)
            continue
        if isinstance(row, dict):
            yield number, row, None
        else:
            message = f"{kind(row)} where an object is needed"
            yield number, row, Fault(message, 'write {"field": value, ...}')


def _listed(file: Any) -> Iterator[tuple[int, Any, Fault | None]]:
    """As `_parsed`, of a file that is one list."""
    try:
        rows = json.loads(file.read())
    except (ValueError, RecursionError) as error:
        yield 1, None, Fault(f"the list is not JSON: {error}", "write the file again, or as JSONL")
        return
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            yield number, row, None
        else:
            message = f"{kind(row)} where an object is needed"
            yield number, row, Fault(message, 'write {"field": value, ...}')


def _begins_list(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _check_header(name: str, source: str, path: Path, rules: RowRules) -> Iterator[Problem]:
    """Check the columns of a CSV or a text; the workers check the rows, and Arrow files."""
    if path.suffix == ".arrow":
        return
    columns: dict[str, Any] = {"text": ""}
    if path.suffix != ".txt":
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            try:
                columns = _header(file, separator)
            except csv.Error as error:
                what = f"the first line is not a header of columns ({error})"
                yield _problem(name, source, what, "write the names of the columns there")
                return
    if fault := _columns_fault(columns, rules):
        yield _problem(name, source, *fault)


def _header(file: Iterable[str], separator: str) -> dict[str, Any]:
    """Return the columns that the first line names. Raises csv.Error."""
    columns: dict[str, Any] = dict.fromkeys(next(csv.reader(file, delimiter=separator), ()))
    longest = max(map(len, columns), default=0)
    # The module's own limit is one of the whole process: a reader of long values has raised it.
    if longest > _LONGEST_COLUMN:
        raise csv.Error(f"a name with {longest:,} characters")
    return columns


def _json_fault(line: bytes, error: Exception) -> Fault:
    if isinstance(error, UnicodeDecodeError):
        return Fault("not UTF-8 text", "save the file as UTF-8")
    text = line.decode("utf-8", "replace").strip()
    at = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    what = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
    if text.startswith("{'") or ": '" in text:
        return Fault(f"not JSON: {what}{at}", "JSON requires double quotes")
    if text.endswith(","):
        return Fault(f"not JSON: {what}{at}", "end the line after `}`, without a comma")
    if text.startswith("{") and not text.endswith("}"):
        return Fault(f"not JSON: {what}{at}", "the row is cut off: write one whole object per line")
    return Fault(f"not JSON: {what}{at}", "write one whole JSON object per line")


def _is_document(path: Path) -> bool:
    """Return whether the file is one JSON list or one object over several lines."""
    with path.open("rb") as file:
        lines = [line.strip() for line in islice(file, 2)]
    first = lines[0] if lines else b""
    return first in (b"[", b"{") or (first.startswith(b"[") and first.endswith((b"},", b"}]")))


def _document(name: str, source: str) -> Problem:
    hint = (
        "write one object per line, for example with pandas:"
        " read_json(file).to_json('rows.jsonl', orient='records', lines=True)"
    )
    return _problem(name, source, "the file is one JSON document, not one object per line", hint)


def _shape_fault(row: Row, rules: RowRules) -> Fault | None:
    """Return what the row lacks for its format."""
    if rules.row_format is None:
        return None
    named = renamed(row, rules.columns) if rules.columns else row
    shape = named if isinstance(named, Fault) else shaped(named, rules.row_format)
    if isinstance(shape, Fault) or not rules.answers:
        return shape if isinstance(shape, Fault) else None
    if shape.get("weight") == 0:
        return None  # Nothing of it is asked for.
    if "text" in shape:
        return Fault("plain text has no answer", _NO_ANSWER)
    if shape["messages"][-1]["role"] != "assistant":
        return Fault("the chat has no answer at its end", _NO_ANSWER)
    return None


def _check_parquet(name: str, source: str, path: Path, rules: RowRules) -> Iterator[Problem]:
    if find_spec("pyarrow") is None:
        return  # the workers have it and check the columns
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        what = str(error).splitlines()[0]
        hint = "write the file again: it is cut off, or not Parquet at all"
        yield _problem(name, source, f"cannot be read as Parquet ({what})", hint)
        return
    with file:
        columns = dict.fromkeys(file.schema_arrow.names)
        num_rows = file.metadata.num_rows
    if num_rows == 0:
        yield _problem(name, source, "has no rows", "add rows to it")
    elif fault := _columns_fault(columns, rules):
        yield _problem(name, source, *fault)


def _columns_fault(columns: Row, rules: RowRules) -> Fault | None:
    if rules.row_format is None:
        return None
    named = renamed(columns, rules.columns)
    if isinstance(named, Fault) or recognised(named, rules.row_format):
        return named if isinstance(named, Fault) else None
    return Fault(f"has only the columns {keys(named)}", wanted(rules.row_format))


def _problem(
    path: str, source: str, message: str, suggestion: str, line: int | None = None
) -> Problem:
    return Problem(path=path, message=message, suggestion=suggestion, file=source, line=line)
