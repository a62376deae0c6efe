"""A YAML text: its values, where each was written, and what is wrong with it.

The dialect is PyYAML's safe one with the readings that people expect of numbers and dates: `1e-4`
is a number (YAML 1.1 wants `1.0e-4`), `010` and `12:30:00` are not sums in base 8 and 60, and a
date stays the text that was written. Reading and writing use the same rules, so that what we write
reads back the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic import BaseModel
from yaml.reader import ReaderError

from llmops_kernel.config.problems import (
    Origin,
    Origins,
    Path,
    Problem,
    config_error,
    did_you_mean,
    listed,
)

_MERGE = "tag:yaml.org,2002:merge"
# PyYAML lets the errors of its constructors through: `!!int x`, `!!bool x`, `!!timestamp x`.
_LEAKED = (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError)
READ_ERRORS = (yaml.YAMLError, *_LEAKED)
"""Errors that reading a text that is not YAML may raise."""
_MOST_VALUES = 200_000  # a few short lines of aliases to aliases unfold into any number
_KINDS: dict[type, str] = {list: "list", str: "text", int: "number", float: "number"}


# --- The dialect ---

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?
       |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
       |[-+]?\.(?:inf|Inf|INF)
       |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_INT = re.compile(r"^(?:[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+)$")
_MOST_BRACKETS = 100  # within each other; configs have a few
_REPLACED = {
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:timestamp",
}


def _resolvers() -> dict[str, list[tuple[str, Any]]]:
    resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in _REPLACED]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+0123456789.":
        resolvers.setdefault(first, []).append(("tag:yaml.org,2002:float", _FLOAT))
        resolvers[first].append(("tag:yaml.org,2002:int", _INT))
    return resolvers


class Loader(yaml.SafeLoader):
    """Safe: makes plain values only. Raises RecursionError for more than 100 open brackets."""

    yaml_implicit_resolvers = _resolvers()

    def fetch_flow_collection_start(self, token_class: type[yaml.Token]) -> None:
        # PyYAML looks at all open brackets at each token: 10,000 take it seconds, 100,000 minutes.
        if self.flow_level >= _MOST_BRACKETS:
            raise RecursionError(f"more than {_MOST_BRACKETS} open brackets")
        super().fetch_flow_collection_start(token_class)


class Dumper(yaml.SafeDumper):
    """Quotes exactly the texts that `Loader` would read as something else."""

    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:  # repeat values: `&id001` means nothing to readers
        return True


def dump(data: Any) -> str:
    """Return YAML in block style, keys in their order, long texts on one line."""
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return text


def parse_value(text: str) -> Any:
    """Return one value as YAML reads it. Raises yaml.YAMLError, or RecursionError if too deep."""
    return yaml.load(text, Loader=Loader)


def flatten(config: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> plain value, of a config or of its dictionary; empty mappings vanish.

    The sections of a list have their numbers in the path: `data.train[0].path`.
    """
    data = config.model_dump(mode="json") if isinstance(config, BaseModel) else config
    return dict(_flat(data, ""))


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            yield from _flat({f"{key}[{number}]": v for number, v in enumerate(value)}, prefix)
        else:
            yield f"{prefix}{key}", value


# --- Positions ---


@dataclass(frozen=True)
class Place:
    """The position of a `key: value`, or of an item of a list."""

    path: Path
    key: yaml.Node
    """The item itself, of a list."""
    value: yaml.Node
    text: str

    @property
    def line(self) -> int:
        return int(self.key.start_mark.line) + 1

    @property
    def key_range(self) -> tuple[int, int]:
        """Return offsets in the text, in characters from 0."""
        return self.key.start_mark.index, self._end_of(self.key)

    @property
    def value_range(self) -> tuple[int, int]:
        start = self.value.start_mark.index
        if start < self.key.start_mark.index:  # an alias: the value stands where its anchor is
            return self.key_range[1], self.key_range[1]
        return start, self._end_of(self.value)

    @property
    def is_block(self) -> bool:
        """Return whether it is a collection over several lines, without brackets."""
        return isinstance(self.value, yaml.CollectionNode) and not self.value.flow_style

    def _end_of(self, node: yaml.Node) -> int:
        """Return the offset after a node; the parser's own mark is after blank lines."""
        start, end = node.start_mark.index, node.end_mark.index
        while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            key, inner = last if isinstance(last, tuple) else (None, last)
            behind = key.end_mark.index if key is not None else node.start_mark.index + 1
            if inner.start_mark.index < behind:  # an alias, whose own position is not known
                break
            node, end = inner, inner.end_mark.index
        while end > start and self.text[end - 1].isspace():
            end -= 1
        return int(end)


@dataclass
class Document:
    """A text that has been read, or plain data such as a notebook's dict, which has no text."""

    data: dict[str, Any]
    origins: Origins = field(default_factory=Origins)
    problems: list[Problem] = field(default_factory=list)
    text: str = ""
    places: list[Place] = field(default_factory=list)
    """All keys and items in the order of the text; a key that is given twice has two."""
    is_readable: bool = True
    """False for a text that is not YAML with keys and values: the problems say why."""


def document_of(data: Mapping[str, Any]) -> Document:
    """Return plain data as if it had been read."""
    return Document({str(key): value for key, value in data.items()})


def read_yaml(path: FilePath, *, remedy: str = "", siblings: str = "*.yaml") -> Document:
    """Read a file. Raises ConfigError when there is nothing to check: no file, no mapping.

    Duplicate keys come back in `problems`. `siblings` is the pattern of files to suggest
    when `path` is missing.
    """
    text = read_text(path, remedy=remedy, siblings=siblings)
    return parse_yaml(text, file=str(path), remedy=remedy)


def parse_yaml(text: str, *, file: str, remedy: str = "") -> Document:
    """Like `read_yaml` for a text; `file` is what the problems call it."""
    document = parsed(text, file=file)
    if not document.is_readable:
        raise config_error(document.problems, remedy=remedy)
    return document


def parsed(text: str, *, file: str) -> Document:
    """Return the document of any text; raises nothing."""
    reader = _Reader(text, file)
    try:
        data = reader.read()
        if reader.refused:
            problems = reader.refused
        elif data is None:
            problems = [Problem(path="", message="the file is empty", file=file)]
        elif isinstance(data, dict):
            values = {str(key): value for key, value in data.items()}
            return Document(values, reader.origins, reader.problems, text, reader.places)
        else:
            kind = _KINDS.get(type(data), "single value")
            message = f"a {kind} where `key: value` lines are needed"
            hint = "write for example `seed: 42`, with a space after the colon"
            problems = [Problem(path="", message=message, value=data, suggestion=hint, file=file)]
    except yaml.YAMLError as error:
        problems = [explain(error, text=text, file=file)]
    except _LEAKED as error:
        deep = isinstance(error, RecursionError)
        message = "nested too deeply" if deep else f"a value that does not match its tag ({error})"
        hint = "" if deep else "write plain values without `!` tags"
        problems = [Problem(path="", message=message, suggestion=hint, file=file)]
    return Document({}, reader.origins, problems, text, reader.places, is_readable=False)


class _Reader:
    """Walks the nodes once and records positions, texts and keys given twice."""

    def __init__(self, text: str, file: str) -> None:
        self.origins = Origins(file)
        self.places: list[Place] = []
        self.problems: list[Problem] = []
        self.refused: list[Problem] = []
        """Problems that make the text unusable, such as an alias that contains itself."""
        self._text = text
        self._file = file
        self._open: set[int] = set()
        self._done: set[int] = set()

    def read(self) -> Any:
        """Return the values. Raises READ_ERRORS."""
        loader = Loader(self._text)
        node = loader.get_single_node()
        if node is None:
            return None
        self._walk(node, ())
        if not self.refused and _unfolded(node, {}) > _MOST_VALUES:
            message = "aliases that expand into too many values"
            self.refused.append(Problem(path="", message=message, file=self._file))
        return None if self.refused else loader.construct_document(node)

    def _walk(self, node: yaml.Node, path: Path) -> None:
        if id(node) in self._open:
            self.refused.append(self._problem(node, path, "an alias that contains itself"))
            return
        if id(node) in self._done:
            return  # an alias: values there are where the alias stands
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._walk_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._place(item, (*path, str(index)), item)
                self._walk(item, (*path, str(index)))
        self._open.discard(id(node))
        if not isinstance(node, yaml.ScalarNode):
            self._done.add(id(node))

    def _walk_mapping(self, node: yaml.MappingNode, path: Path) -> None:
        first_line: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                self._walk(value, path)
                continue
            name, line = str(key.value), key.start_mark.line + 1
            below = (*path, name)
            if name in first_line:
                message = f"given twice, on lines {first_line[name]} and {line}"
                self.problems.append(
                    self._problem(key, below, message, suggestion="keep one of them")
                )
            first_line.setdefault(name, line)
            self._place(key, below, value)
            self._walk(value, below)

    def _place(self, at: yaml.Node, path: Path, value: yaml.Node) -> None:
        text = value.value if isinstance(value, yaml.ScalarNode) else None
        place = Place(path, at, value, self._text)
        self.places.append(place)
        self.origins.add(path, Origin(self._file, place.line, text))

    def _problem(self, node: yaml.Node, path: Path, message: str, **more: Any) -> Problem:
        line = node.start_mark.line + 1
        return Problem(path=".".join(path), message=message, file=self._file, line=line, **more)


def _unfolded(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Return the number of values in a node with each alias written out."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        pairs = isinstance(node, yaml.MappingNode)
        inner = [item for pair in node.value for item in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_unfolded(item, known) for item in inner)
    return known[id(node)]


# --- Files ---


def read_text(path: FilePath, *, remedy: str = "", siblings: str = "*.yaml") -> str:
    """Return a file's text. Raises ConfigError when it cannot be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise _refuse(path, f"not UTF-8 text ({error.reason})", remedy, line=line) from None
    except IsADirectoryError:
        names = _names(path, siblings)
        hint = f"name a file in it: {listed(names)}" if names else "name a file"
        raise _refuse(path, "is a folder, not a file", remedy, suggestion=hint) from None
    except OSError as error:
        raise _missing(path, error, siblings, remedy) from None


def _missing(path: FilePath, error: OSError, siblings: str, remedy: str) -> Exception:
    if not isinstance(error, FileNotFoundError):
        return _refuse(path, f"cannot be read: {error.strerror}", remedy)
    names = _names(path.parent, siblings)
    hint = did_you_mean(path.name, names)
    if not hint and names:
        hint = f"there are: {listed(names)}"
    if not hint and not path.parent.is_dir():
        hint = f"the folder {path.parent} does not exist either"
    return _refuse(path, "no such file", remedy, suggestion=hint)


def _names(folder: FilePath, pattern: str) -> list[str]:
    try:
        return sorted(file.name for file in folder.glob(pattern))
    except OSError:
        return []


def _refuse(file: FilePath | str, message: str, remedy: str, **more: Any) -> Exception:
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
        match = _NO_SPACE.match(lines[near]) if 0 <= near < len(lines) else None
        if match:
            key, value = match.groups()
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
