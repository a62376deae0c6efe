"""Read a data file's rows once and report the broken ones by number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from llmops_kernel.config.problems import Problem

Row = dict[str, Any]
_SHOWN = 3
_MOST_BYTES = 512 * 1024 * 1024  # about five seconds of reading
_CHAT = "`messages`, or `prompt` and `completion`"
_REMEDY = "correct or delete these rows"
_NO_ANSWER = "end held-out chats with the answer, or set evaluation.generate=false"


@dataclass(frozen=True)
class RowRules:
    """The requirements for the rows of a source."""

    row_format: str | None = "auto"
    """The format as in `data.format`; None if a hook formats the rows: any object is allowed."""
    limit: int | None = None
    """Rows that are used; what comes after them is not looked at."""
    answers: bool = False
    """Each chat must end with an answer, to compare a generated one with."""


def check_rows(name: str, source: str, path: Path, rules: RowRules) -> Iterator[Problem]:
    """Yield the problems of a JSONL or Parquet file; `name` is the field that names it."""
    if path.suffix == ".parquet":
        yield from _check_parquet(name, source, path, rules.row_format)
        return
    broken: list[Problem] = []
    num_broken = num_rows = 0
    with path.open("rb") as file:
        for number, row, fault in islice(_parsed(file), rules.limit):
            num_rows += 1
            fault = fault or _shape_fault(row, rules)
            if fault is None:
                continue
            num_broken += 1
            if num_broken <= _SHOWN:
                message, hint = fault
                broken.append(_problem(name, source, f"row {number}: {message}", hint, number))
            if num_broken == 1 and _is_document(path):
                yield _document(name, source)
                return
    yield from broken
    if num_broken > _SHOWN:
        message = f"{num_broken:,} of {num_rows:,} rows are invalid; the first {_SHOWN} are shown"
        yield _problem(name, source, message, _REMEDY)
    if num_rows == 0:
        yield _problem(
            name, source, "has no rows, only blank lines", "write one JSON object per line"
        )


Fault = tuple[str, str]
"""(what is wrong, what would work)"""


def _parsed(lines: Iterator[bytes] | Any) -> Iterator[tuple[int, Any, Fault | None]]:
    """Number (counted with blank lines, as editors do), row, what is wrong with its JSON."""
    loads, read = json.loads, 0
    for number, line in enumerate(lines, start=1):
        read += len(line)
        if read > _MOST_BYTES:
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
            message = f"{_kind(row)} where an object is needed"
            yield number, row, (message, 'write {"field": value, ...}')


def _json_fault(line: bytes, error: Exception) -> Fault:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text", "save the file as UTF-8"
    text = line.decode("utf-8", "replace").strip()
    at = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    what = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
    if text.startswith("{'") or ": '" in text:
        return f"not JSON: {what}{at}", "JSON requires double quotes"
    if text.endswith(","):
        return f"not JSON: {what}{at}", "end the line after `}`, without a comma"
    if text.startswith("{") and not text.endswith("}"):
        return f"not JSON: {what}{at}", "the row is cut off: write one whole object per line"
    return f"not JSON: {what}{at}", "write one whole JSON object per line"


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
    row_format = rules.row_format
    if row_format is None:
        return None
    if row_format != "text":
        if "messages" in row:
            return _messages_fault(row["messages"]) or _answer_fault(row["messages"], rules)
        if "prompt" in row and "completion" in row:
            return None
    if row_format != "chat" and "text" in row:
        if not isinstance(row["text"], str):
            return f"`text` is {_kind(row['text'])}", "write a string"
        return ("plain text has no answer", _NO_ANSWER) if rules.answers else None
    return f"has only the keys {_keys(row)}", _wanted(row_format)


def _wanted(row_format: str) -> str:
    needed = {"chat": _CHAT, "text": "`text`"}.get(row_format, f"{_CHAT}, or `text`")
    return f"{row_format} rows need {needed}; or define format_example(row) in the hooks file"


def _keys(row: Row) -> str:
    return ", ".join(sorted(row)[:8]) or "none"


_MESSAGE = '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'


def _messages_fault(messages: Any) -> Fault | None:
    hint = f"write {_MESSAGE}"
    if not isinstance(messages, list):
        return f"`messages` is {_kind(messages)}, not a list", hint
    if not messages:
        return "`messages` is empty", hint
    for index, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            return f"message {index} is {_kind(message)}, not an object", hint
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                what = f"is {_kind(message[key])}, not text" if key in message else "is missing"
                return f"`{key}` of message {index} {what}", hint
    return None


def _answer_fault(messages: list[Row], rules: RowRules) -> Fault | None:
    if not rules.answers or messages[-1]["role"] == "assistant":
        return None
    return "the chat has no answer at its end", _NO_ANSWER


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true/false",
    type(None): "null",
}


def _check_parquet(name: str, source: str, path: Path, row_format: str | None) -> Iterator[Problem]:
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
    elif not _has_columns(columns, row_format):
        message = f"has only the columns {_keys(columns)}"
        yield _problem(name, source, message, _wanted(row_format or "auto"))


def _has_columns(columns: Row, row_format: str | None) -> bool:
    chat = "messages" in columns or {"prompt", "completion"} <= columns.keys()
    known: dict[str | None, Callable[[], bool]] = {
        None: lambda: True,
        "chat": lambda: chat,
        "text": lambda: "text" in columns,
    }
    return known.get(row_format, lambda: chat or "text" in columns)()


def _problem(
    path: str, source: str, message: str, suggestion: str, line: int | None = None
) -> Problem:
    return Problem(path=path, message=message, suggestion=suggestion, file=source, line=line)
