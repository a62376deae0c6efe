"""Read a YAML file into plain values and keep the line of each key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.reading.origins import Origin, Origins
from llmops_kernel.config.reading.yaml_dialect import Loader

MERGE = "tag:yaml.org,2002:merge"
# PyYAML lets the errors of its constructors through: `!!int x`, `!!bool x`, `!!timestamp x`.
_LEAKED = (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError)
READ_ERRORS = (yaml.YAMLError, *_LEAKED)
"""Errors that reading a text that is not YAML may raise."""


_MOST_VALUES = 200_000  # a few short lines of aliases to aliases unfold into any number


@dataclass
class Source:
    """The parsed values, where each was written, and the problems so far."""

    data: dict[str, Any]
    origins: Origins
    problems: list[Problem] = field(default_factory=list)


def read_yaml(path: Path, *, remedy: str = "", siblings: str = "*.yaml") -> Source:
    """Read a file. Raises ConfigError when there is nothing to check: no file, no mapping.

    Duplicate keys come back in `problems`. `siblings` is the pattern of files to suggest
    when `path` is missing.
    """
    text = read_text(path, remedy=remedy, siblings=siblings)
    return parse_yaml(text, file=str(path), remedy=remedy)


def read_text(path: Path, *, remedy: str = "", siblings: str = "*.yaml") -> str:
    """Return a file's text. Raises ConfigError when it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise _refuse(path, f"not UTF-8 text ({error.reason})", remedy, line=line) from None
    except IsADirectoryError:
        found = _names(path, siblings)
        hint = f"name a file in it: {listed(found)}" if found else "name a file"
        raise _refuse(path, "is a folder, not a file", remedy, suggestion=hint) from None
    except OSError as error:
        raise _missing(path, error, siblings, remedy) from None


def parse_yaml(text: str, *, file: str, remedy: str = "") -> Source:
    """Like `read_yaml` for a text; `file` is what the problems call it."""
    reader = _Reader(file)
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            reader.walk(node, ())
        if not reader.recursive and _unfolded(node, {}) > _MOST_VALUES:
            raise _refuse(file, "aliases that expand into too many values", remedy)
        data = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise config_error([explain(error, text=text, file=file)], remedy=remedy) from None
    except _LEAKED as error:
        deep = isinstance(error, RecursionError)
        message = "nested too deeply" if deep else f"a value that does not match its tag ({error})"
        hint = "" if deep else "write plain values without `!` tags"
        raise _refuse(file, message, remedy, suggestion=hint) from None
    if reader.recursive:
        raise config_error(reader.problems, remedy=remedy)
    if data is None:
        raise _refuse(file, "the file is empty", remedy)
    if not isinstance(data, dict):
        raise _refuse(
            file,
            f"a {_KINDS.get(type(data), 'single value')} where `key: value` lines are needed",
            remedy,
            value=data,
            suggestion="write for example `seed: 42`, with a space after the colon",
        )
    return Source({str(key): value for key, value in data.items()}, reader.origins, reader.problems)


def _unfolded(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Return the number of values in a node with each alias written out."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        pairs = isinstance(node, yaml.MappingNode)
        inner = [item for pair in node.value for item in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_unfolded(item, known) for item in inner)
    return known[id(node)]


_KINDS: dict[type, str] = {list: "list", str: "text", int: "number", float: "number"}


class _Reader:
    """Walks the nodes once and records lines, texts and keys given twice."""

    def __init__(self, file: str) -> None:
        self.origins = Origins(file)
        self.problems: list[Problem] = []
        self.recursive = False
        self._file = file
        self._open: set[int] = set()
        self._done: set[int] = set()

    def walk(self, node: yaml.Node, path: tuple[str, ...]) -> None:
        if id(node) in self._open:
            self.recursive = True
            self._add(node, path, "an alias that contains itself")
            return
        if id(node) in self._done:
            return  # an alias: values there are where the alias stands
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._walk_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._place(item, (*path, str(index)), item)
                self.walk(item, (*path, str(index)))
        self._open.discard(id(node))
        if not isinstance(node, yaml.ScalarNode):
            self._done.add(id(node))

    def _walk_mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> None:
        first_line: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                self.walk(value, path)
                continue
            name, line = str(key.value), key.start_mark.line + 1
            below = (*path, name)
            if name in first_line:
                self._add(
                    key,
                    below,
                    f"given twice, on lines {first_line[name]} and {line}",
                    suggestion="keep one of them",
                )
            first_line.setdefault(name, line)
            self._place(key, below, value)
            self.walk(value, below)

    def _place(self, at: yaml.Node, path: tuple[str, ...], value: yaml.Node) -> None:
        text = value.value if isinstance(value, yaml.ScalarNode) else None
        self.origins.add(path, Origin(self._file, at.start_mark.line + 1, text))

    def _add(self, node: yaml.Node, path: tuple[str, ...], message: str, **more: Any) -> None:
        self.problems.append(
            Problem(
                path=".".join(path),
                message=message,
                file=self._file,
                line=node.start_mark.line + 1,
                **more,
            )
        )


def _missing(path: Path, error: OSError, siblings: str, remedy: str) -> Exception:
    if not isinstance(error, FileNotFoundError):
        return _refuse(path, f"cannot be read: {error.strerror}", remedy)
    found = _names(path.parent, siblings)
    hint = did_you_mean(path.name, found)
    if not hint and found:
        hint = f"there are: {listed(found)}"
    if not hint and not path.parent.is_dir():
        hint = f"the folder {path.parent} does not exist either"
    return _refuse(path, "no such file", remedy, suggestion=hint)


def _names(folder: Path, pattern: str) -> list[str]:
    try:
        return sorted(file.name for file in folder.glob(pattern))
    except OSError:
        return []


def _refuse(file: Path | str, message: str, remedy: str, **more: Any) -> Exception:
    return config_error([Problem(path="", message=message, file=str(file), **more)], remedy=remedy)


# --- Explain what is wrong with a text that is not YAML ---


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
