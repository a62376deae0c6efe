"""Explain what is wrong with a text that is not YAML."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.reader import ReaderError

from llmops_kernel.config.problems import Problem

_NO_SPACE = re.compile(r"^\s*(?:- )?([A-Za-z_][\w.-]*):([^\s/].*)$")


def explain(error: yaml.YAMLError, *, text: str, file: str) -> Problem:
    """Return the line, what the parser reports, and the most likely cause."""
    if isinstance(error, ReaderError):
        character = error.character if isinstance(error.character, int) else 0
        return Problem(
            path="",
            message=f"a control character (U+{character:04X}) that YAML does not allow",
            suggestion="delete it",
            file=file,
            line=text.count("\n", 0, error.position) + 1,
        )
    parts = [getattr(error, name, None) for name in ("context", "problem")]
    what = ": ".join(part for part in parts if part) or str(error).replace("\n", " ")
    mark = _mark(error, what)
    index = min(mark.line, text.count("\n")) if mark else 0
    index, message, suggestion = _habit(what, text.splitlines(), index)
    here = mark is not None and mark.line == index
    return Problem(
        path="",
        message=f"{message} at column {mark.column + 1}" if here else message,
        suggestion=suggestion,
        file=file,
        line=index + 1 if mark else None,
    )


def _mark(error: yaml.YAMLError, what: str) -> Any:
    """Return where to look: the beginning of what is not closed, else where the parser stopped."""
    places = [getattr(error, name, None) for name in ("context_mark", "problem_mark")]
    left_open = any(part in what for part in ("expected ':'", "quoted scalar", "expected ','"))
    return next(filter(None, places if left_open else reversed(places)), None)


def _habit(what: str, lines: list[str], index: int) -> tuple[int, str, str]:
    """Return (index of the line, what is wrong, what would work)."""
    here = lines[index] if index < len(lines) else ""
    if "'\\t'" in what or "\t" in here[: len(here) - len(here.lstrip())]:
        return index, "a tab character", "YAML requires spaces: indent with two spaces"
    if "constructor for the tag" in what:
        return index, f"YAML that is not supported: {what}", "write plain values without `!` tags"
    if "another document" in what or "single document" in what:
        return index, "a second document (`---`)", "put one config in one file"
    for near in (index, index - 1):
        found = _NO_SPACE.match(lines[near]) if 0 <= near < len(lines) else None
        if found:
            key, value = found.groups()
            return near, "no space after the colon", f"write `{key}: {value.strip()}`"
    for part, message, suggestion in _HABITS:
        if part in what:
            return index, message, suggestion
    return index, f"not YAML: {what}", ""


_HABITS = (
    (
        "mapping values are not allowed",
        "a second `:` on the line, or the wrong indentation",
        'put a value that contains ": " in quotes, and give the keys of a section one indentation',
    ),
    (
        "could not find expected ':'",
        "a line that is not `key: value`",
        "add a colon and a space after the key",
    ),
    ("expected <block end>", "this line does not fit the lines above it",
     "give the keys of a section the same indentation"),
    ("quoted scalar", "a quote that is not closed", "close the quote on the same line"),
    ("expected ',' or ']'", "a `[` list that is not closed", "write `[a, b]`"),
    ("expected ',' or '}'", "a `{` mapping that is not closed", "write `{key: value}`"),
    ("undefined alias", "a value that begins with `*`", "put it in quotes"),
    ("cannot start any token", "a value that begins with a character that YAML reserves",
     "put the value in quotes"),
    ("unhashable key", "a key that is a list or a mapping", "put the value in quotes"),
)  # fmt: skip
