"""Read a YAML file into plain values and keep the line of each key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.reading.origins import Origin, Origins
from llmops_kernel.config.reading.yaml_dialect import Loader
from llmops_kernel.config.reading.yaml_faults import explain

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
