"""Says in plain words what is wrong with a text that is not YAML."""

from __future__ import annotations

import re

import yaml
from yaml.reader import ReaderError

from llmops_kernel.config.problems import Problem

_NO_SPACE = re.compile(r"^\s*(?:- )?([A-Za-z_][\w.-]*):([^\s/].*)$")


def explain(error: yaml.YAMLError, *, text: str, file: str) -> Problem:
    """The place, what the parser met, and the habit that most often leads there."""
    if isinstance(error, ReaderError):
        character = error.character if isinstance(error.character, int) else 0
        return Problem(
            path="",
            message=f"a control character (U+{character:04X}) that YAML does not allow",
            suggestion="delete it",
            file=file,
            line=text.count("\n", 0, error.position) + 1,
        )
    mark = getattr(error, "problem_mark", None)
    what = str(getattr(error, "problem", None) or error).replace("\n", " ")
    line = min(mark.line, text.count("\n")) + 1 if mark else None
    column = f" at column {mark.column + 1}" if mark else ""
    message, suggestion = _habit(what, text.splitlines(), (line or 1) - 1)
    return Problem(
        path="", message=f"{message}{column}", suggestion=suggestion, file=file, line=line
    )


def _habit(what: str, lines: list[str], index: int) -> tuple[str, str]:
    """(what is wrong, what would work)."""
    here = lines[index] if index < len(lines) else ""
    unspaced = next(
        (found for at in (index, index - 1) if 0 <= at < len(lines)
         if (found := _NO_SPACE.match(lines[at]))),
        None,
    )  # fmt: skip
    if "'\\t'" in what or here[: len(here) - len(here.lstrip())].count("\t"):
        return "a tab character", "YAML wants spaces: indent with two spaces"
    if "constructor for the tag" in what:
        return f"not YAML we read: {what}", "write plain values without `!` tags"
    if "another document" in what or "single document" in what:
        return "a second document (`---`)", "put one config in one file"
    if unspaced:
        key, value = unspaced.groups()
        return "no space after the colon", f"write `{key}: {value.strip()}`"
    for part, message, suggestion in _HABITS:
        if part in what:
            return message, suggestion
    return f"not YAML: {what}", ""


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
    ("expected <block end>", "this line is indented differently from its neighbours",
     "give the keys of a section the same indentation"),
    ("quoted scalar", "a quote that is not closed", "close the quote on the same line"),
    ("expected ',' or ']'", "a `[` list that is not closed", "write `[a, b]`"),
    ("expected ',' or '}'", "a `{` mapping that is not closed", "write `{key: value}`"),
    ("undefined alias", "a value that begins with `*`", "put it in quotes"),
    ("cannot start any token", "a value that begins with a character that YAML reserves",
     "put the value in quotes"),
    ("unhashable key", "a key that is a list or a mapping", "put the value in quotes"),
)  # fmt: skip
