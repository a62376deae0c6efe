"""Report all mistakes in a config's text, each with its position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml

from llmops_kernel.config.assist.cursor import MOST_CHARACTERS
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.models.section import Config, Section
from llmops_kernel.config.problems import Problem, unique
from llmops_kernel.config.reading.check import check
from llmops_kernel.config.reading.document import Document, Place, parsed
from llmops_kernel.config.reading.shape import Shaper
from llmops_kernel.config.reading.templates import default_name, without_unknown_provider

Severity = Literal["error", "warning"]
_TEXT = "this text"
_ON_KEY = (
    "is missing",
    "this section is missing",
    "unknown key",
    "cannot be set here",
    "Transformers has no such training argument",
)
"""Messages about a key, not about its value."""


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A mistake and its position; lines count from 1, columns from 0 (characters)."""

    line: int
    column: int
    end_line: int
    end_column: int
    severity: Severity
    path: str
    message: str
    value: str | None
    suggestion: str
    file: str | None = None
    """The override or the other file that the mistake is in; None for the text itself."""


@dataclass(frozen=True)
class Examined:
    """The result of a check of a text."""

    config: Section | None
    """None when something is wrong with the config itself."""
    values: dict[str, Any] | None
    """The written values, sections expanded, defaults left out; None if the text is not YAML."""
    problems: list[Problem] = field(default_factory=list)
    document: Document = field(default_factory=lambda: Document({}))
    """The text, with where each value was written."""

    def placed(self, problem: Problem) -> Problem:
        """Return the problem with file and line, or the override, of the field that it is about."""
        if problem.file or not problem.path:
            return problem
        origin = self.document.origins.of(tuple(problem.path.split(".")))
        return replace(problem, file=origin.file, line=origin.line)

    @property
    def warnings(self) -> list[Problem]:
        """Return what the run changes in a valid config's values."""
        advice = self.config.advice() if isinstance(self.config, Config) else []
        return [
            Problem(path=rule.path, message=rule.message, suggestion=rule.suggestion)
            for rule in advice
        ]


def examine(
    kind: Kind,
    text: str,
    *,
    path: str | None = None,
    folder: FilePath | None = None,
    with_files: bool = False,
    overrides: Sequence[str] = (),
    name: str = _TEXT,
) -> Examined:
    """Read and check; raises nothing for any text.

    `path` is the file's path where it matters, `name` what the problems call the text. With
    `with_files` the files that the config names are checked too; their relative paths begin at
    `folder`.
    """
    if len(text) > MOST_CHARACTERS:
        message = f"{len(text):,} characters; a config has at most {MOST_CHARACTERS:,}"
        unread = Document({}, text=text, is_readable=False)
        return Examined(None, None, [Problem(path="", message=message, file=name)], unread)
    document = parsed(text, file=name)
    if not document.is_readable:
        return Examined(None, None, document.problems, document)
    model = kind.model_of(document.data)
    written = Shaper(model, document.data, origins=document.origins)
    written.use_own_names()
    if kind.models:
        document = without_unknown_provider(document)
    if kind.named_by_file and path:
        document = replace(document, data={"name": default_name(path), **document.data})
    checked = check(model, document, overrides)
    problems = list(unique(checked.problems))
    if with_files and folder is not None and checked.usable is not None:
        wrong = [problem.path for problem in problems]
        problems += kind.check_files(checked.usable, folder, wrong=wrong)
    return Examined(checked.config, written.values, problems, document)


def diagnose(
    kind: Kind,
    text: str,
    *,
    path: str | None = None,
    folder: FilePath | None = None,
    with_files: bool = False,
) -> list[Diagnostic]:
    """Return all mistakes at once, in the order of the text."""
    examined = examine(kind, text, path=path, folder=folder, with_files=with_files)
    return located(examined.problems, examined.document)


def located(
    problems: Iterable[Problem], document: Document, *, severity: Severity = "error"
) -> list[Diagnostic]:
    """Return problems with their positions in a text."""
    locator = _Locator(document)
    diagnostics = [locator.diagnostic(problem, severity) for problem in problems]
    return sorted(diagnostics, key=lambda item: (item.line, item.column))


class _Locator:
    def __init__(self, document: Document) -> None:
        self._text = text = document.text
        self._starts = [0, *(i + 1 for i, character in enumerate(text) if character == "\n")]
        # A look through all places of a name would be quadratic for a key given many times.
        self._first: dict[str, Place] = {}
        self._by_line: dict[tuple[str, int], Place] = {}
        self._on_line: dict[int, Place] = {}
        for place in document.places:
            name = ".".join(place.path)
            self._first.setdefault(name, place)
            self._by_line.setdefault((name, place.line), place)
            self._on_line.setdefault(place.line, place)

    def diagnostic(self, problem: Problem, severity: Severity) -> Diagnostic:
        start, end = self._range(problem)
        line, column = self._position(start)
        end_line, end_column = self._position(end)
        is_own = problem.file in (None, _TEXT)
        message = problem.message
        if not is_own and problem.line is not None and "row" not in message[:4]:
            message = f"line {problem.line}: {message}"
        return Diagnostic(
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
            severity=severity,
            path=problem.path,
            message=message,
            value=problem.shown or None,
            suggestion=problem.suggestion,
            file=None if problem.file == _TEXT else problem.file,
        )

    def _range(self, problem: Problem) -> tuple[int, int]:
        is_own = problem.file in (None, _TEXT)
        if not problem.path:
            return self._line((problem.line or 1) if is_own else 1)
        there = self._by_line.get((problem.path, problem.line or 0)) if is_own else None
        place = there or self._first.get(problem.path)
        if place is None and is_own:  # a field that was written by another name
            named = self._on_line.get(problem.line or 0)
            is_above = named and problem.path.startswith(".".join((*named.path, "")))
            place = None if is_above else named
        if place is None:
            return self._parent(problem.path)
        on_key = problem.message in _ON_KEY or problem.message.startswith("given twice")
        start, end = place.value_range
        return place.key_range if on_key or place.is_block or start == end else (start, end)

    def _parent(self, dotted: str) -> tuple[int, int]:
        """Return where the section of an unwritten field is, else the first line."""
        while "." in dotted:
            dotted = dotted.rpartition(".")[0]
            if place := self._first.get(dotted):
                start, end = place.value_range
                is_plain = isinstance(place.value, yaml.ScalarNode) and start < end
                return (start, end) if is_plain else place.key_range  # `method: lora`
        return self._line(1)

    def _line(self, number: int) -> tuple[int, int]:
        """Return the range of a line without its indentation."""
        index = min(number, len(self._starts)) - 1
        start = self._starts[index]
        end = self._starts[index + 1] - 1 if index + 1 < len(self._starts) else len(self._text)
        line = self._text[start:end]
        indent = len(line) - len(line.lstrip()) if line.strip() else 0
        return start + indent, start + len(line.rstrip())

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]
