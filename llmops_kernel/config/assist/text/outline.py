"""Read the keys of a text line by line, whether or not it is valid YAML yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmops_kernel.config.assist.text.entries import ITEM, Entry, comment_start, unquoted
from llmops_kernel.config.assist.text.flow import Flow
from llmops_kernel.config.reading.document import Path

KEY = re.compile(r"""("[^"\n]*"|'[^'\n]*'|[^\s#:{}\[\],&*!|>'"%@`-][^#:{}\[\],\n]*):(?=\s|$)""")
MOST_LEVELS = 100
"""Limit for items in one line: each keeps its whole path, and no config is nested that deep."""
_DASH = re.compile(r"-(?:[ \t]+|$)")


@dataclass(frozen=True)
class Level:
    """A key or list item that lines with more indentation belong to."""

    indent: int
    path: Path
    is_item: bool = False


@dataclass(frozen=True)
class Brackets:
    """The position of brackets, and what is needed to read them again up to a cursor."""

    start: int
    end: int
    closed: bool
    path: Path
    indent: int


Stack = tuple[Level, ...]


class Outline:
    """Entries in order; for each line (from 0) the levels that are open before it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts: list[int] = []
        self.entries: list[Entry] = []
        self.stacks: list[Stack] = []
        self.brackets: list[Brackets] = []
        self.literal: set[int] = set()
        """Lines of block texts (`|`, `>`), where keys are only words."""
        self._stack: Stack = ()
        self._behind = 0
        self._literal_indent: int | None = None
        offset = 0
        for number, line in enumerate(self.lines):
            self.starts.append(offset)
            self.stacks.append(self._stack)
            self._line(number, line.rstrip("\r"), offset)
            offset += len(line) + 1

    def _line(self, number: int, line: str, offset: int) -> None:
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if offset < self._behind or not content or content.startswith("#"):
            if self._literal_indent is not None:
                self.literal.add(number)
            return
        if self._literal_indent is not None and indent > self._literal_indent:
            self.literal.add(number)
            return
        self._literal_indent = None
        self._stack, column = enter_items(self._stack, line, indent)
        self._content(line, column, offset)

    def _content(self, line: str, column: int, offset: int) -> None:
        found = KEY.match(line, column)
        if found is None:
            self._value(line, column, offset, indent=column, path=path_of(self._stack))
            return
        self._stack = enter_key(self._stack, column, unquoted(found[1]))
        path = self._stack[-1].path
        start = found.end() + len(line[found.end() :]) - len(line[found.end() :].lstrip(" \t"))
        end = self._value(line, start, offset, indent=column, path=path)
        key_end = offset + column + len(found[1].rstrip())
        self.entries.append(Entry(path, offset + column, key_end, offset + start, end))

    def _value(self, line: str, start: int, offset: int, *, indent: int, path: Path) -> int:
        """Return the end of the value that begins there."""
        first = line[start : start + 1]
        if first and first in "{[":
            flow = Flow(self.text, offset + start, path=path, indent=indent, stop=len(self.text))
            self.entries += flow.entries
            self.brackets.append(Brackets(offset + start, flow.end, flow.closed, path, indent))
            self._behind = flow.end
            return flow.end
        if first and first in "|>":
            self._literal_indent = indent
        return offset + max(start, len(line[: comment_start(line, start)].rstrip()))


def enter_items(stack: Stack, line: str, column: int) -> tuple[Stack, int]:
    """Return the stack and the column after the `- ` at the beginning of a line."""
    while len(stack) < MOST_LEVELS and (dash := _DASH.match(line, column)):
        while stack and _ends(stack[-1], column):
            stack = stack[:-1]
        stack = (*stack, Level(column, (*path_of(stack), ITEM), is_item=True))
        column = dash.end()
    return stack, column


def _ends(level: Level, column: int) -> bool:
    """Return whether the level ends: a list may start in the column of its key."""
    return level.indent > column or (level.indent == column and level.is_item)


def above(stack: Stack, column: int) -> Stack:
    """Return the levels that a line belongs to if it begins in that column."""
    while stack and stack[-1].indent >= column:
        stack = stack[:-1]
    return stack


def enter_key(stack: Stack, column: int, key: str) -> Stack:
    stack = above(stack, column)
    return (*stack, Level(column, (*path_of(stack), key)))


def path_of(stack: Stack) -> Path:
    return stack[-1].path if stack else ()
