"""Find what a cursor is on in a text that may be half-written: a key or a value, and its section.

`Outline` reads the keys line by line, whether or not the text is valid YAML yet; `Flow` reads
`{a: 1, b: [c]}` however far it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmops_kernel.config.problems import Path

ITEM = "-"
"""Stands for any item of a list in a path."""
MOST_CHARACTERS = 256 * 1024
"""Longest text that is read while it is edited: a hundred times a long config."""


BLOCK_KEY = re.compile(r'( *)(?:"[^"\n]*"|[\w.-]+)[ \t]*:(?=\s|$)')
KEY = re.compile(r"""("[^"\n]*"|'[^'\n]*'|[^\s#:{}\[\],&*!|>'"%@`-][^#:{}\[\],\n]*):(?=\s|$)""")
MOST_LEVELS = 100
"""Limit for items in one line: each keeps its whole path, and no config is nested that deep."""
_DASH = re.compile(r"-(?:[ \t]+|$)")
_DEEPEST = 50  # of brackets in brackets; no config has so many
_WORD_END = re.compile(r"[\s,\]}#:]|$")


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Columns are of the cursor's line, in characters from 0."""

    path: Path
    """The path of the section that has the key, or of the field that has the value."""
    is_value: bool
    prefix: str
    """The part of the word that is before the cursor."""
    start: int
    end: int
    """The word that a proposal replaces."""
    siblings: frozenset[str] = frozenset()
    """Keys that the section has already."""
    in_flow: bool = False
    has_colon: bool = False
    indent: int = 0


def cursor_at(text: str, *, line: int, column: int) -> Cursor | None:
    """Return the cursor; None in comments, in block texts and outside of the text."""
    if len(text) > MOST_CHARACTERS:
        return None
    outline = Outline(text)
    index = line - 1
    if not 0 <= index < len(outline.lines) or index in outline.literal:
        return None
    column = max(0, min(column, len(outline.lines[index])))
    offset = outline.starts[index] + column
    for brackets in outline.brackets:
        last = brackets.end - 1 if brackets.closed else brackets.end
        if brackets.start < offset <= last:
            return _in_brackets(outline, brackets, index, offset)
    return _in_block(outline, index, column)


def _in_brackets(outline: Outline, brackets: Brackets, index: int, offset: int) -> Cursor | None:
    text, line_start = outline.text, outline.starts[index]
    flow = Flow(text, brackets.start, path=brackets.path, indent=brackets.indent, stop=offset)
    if flow.in_comment or not flow.open or flow.word < line_start:
        return None
    top = flow.open[-1]
    # The run stops at the cursor and so has ended the entry that it stands in.
    last = flow.entries[-1] if flow.entries and flow.entries[-1].value_start == flow.word else None
    is_value = last is not None or not top.is_map
    path = last.path if last is not None else (*top.path, *(() if top.is_map else (ITEM,)))
    end = _word_end(text, offset)
    here = {e.path[-1] for e in outline.entries if e.path[:-1] == top.path}
    return Cursor(
        path=path,
        is_value=is_value,
        prefix=text[flow.word : offset],
        start=flow.word - line_start,
        end=end - line_start,
        siblings=frozenset(here - {unquoted(text[flow.word : end])}),
        in_flow=True,
        has_colon=text[end : end + 1] == ":",
    )


def _in_block(outline: Outline, index: int, column: int) -> Cursor | None:
    line = outline.lines[index].rstrip("\r")
    column = min(column, len(line))
    indent = len(line) - len(line.lstrip(" ")) if line.strip() else column
    if column < indent or comment_start(line) < column:
        return None
    stack, at = enter_items(outline.stacks[index], line, indent)
    if column < at:
        return None
    match = KEY.match(line, at)
    if match is not None and column >= match.end():
        return _value(above(stack, at), line, column, match)
    stack = above(stack, at)
    parent, offset = path_of(stack), outline.starts[index]
    key_end = match.end() - 1 if match is not None else _word_end(line, column)
    own_line = range(offset, offset + len(line) + 1)
    beside = [entry for entry in outline.entries if entry.path[:-1] == parent]
    here = {entry.path[-1] for entry in beside if entry.key_start not in own_line}
    is_item = bool(stack) and stack[-1].is_item and match is None
    return Cursor(
        path=parent,
        is_value=is_item,
        prefix=line[at:column],
        start=at,
        end=max(key_end, column),
        siblings=frozenset(here),
        has_colon=match is not None,
        indent=at,
    )


def _value(stack: tuple[Level, ...], line: str, column: int, match: re.Match[str]) -> Cursor | None:
    """Return the cursor on the value behind `key: `."""
    if column == match.end():
        return None  # a value needs a space before it
    rest = line[match.end() :]
    start = min(column, match.end() + len(rest) - len(rest.lstrip(" \t")))
    end = len(line[: comment_start(line, match.end())].rstrip())
    return Cursor(
        path=(*path_of(stack), unquoted(match[1])),
        is_value=True,
        prefix=line[start:column],
        start=start,
        end=max(end, column),
    )


def _word_end(text: str, offset: int) -> int:
    match = _WORD_END.search(text, offset)
    return match.start() if match else len(text)


# --- Entries of a text ---


@dataclass(frozen=True)
class Entry:
    """Offsets count characters of the text from 0."""

    path: Path
    key_start: int
    key_end: int
    value_start: int
    value_end: int
    """The end of the value on the key's line, or in its brackets, without comments."""


def unquoted(text: str) -> str:
    """Return a key or plain value without its quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def comment_start(line: str, start: int = 0) -> int:
    """Return where the comment of a line begins; the line's length without one."""
    quote = ""
    for index in range(start, len(line)):
        character = line[index]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and (index == start or line[index - 1] in " \t[{,:"):
            quote = character
        elif character == "#" and (index == 0 or line[index - 1] in " \t"):
            return index
    return len(line)


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
        match = KEY.match(line, column)
        if match is None:
            self._value(line, column, offset, indent=column, path=path_of(self._stack))
            return
        self._stack = enter_key(self._stack, column, unquoted(match[1]))
        path = self._stack[-1].path
        start = match.end() + len(line[match.end() :]) - len(line[match.end() :].lstrip(" \t"))
        end = self._value(line, start, offset, indent=column, path=path)
        key_end = offset + column + len(match[1].rstrip())
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


# --- Brackets ---


@dataclass
class _Container:
    path: Path
    is_map: bool
    key: str | None = None
    key_start: int = 0
    key_end: int = 0


class Flow:
    """State of the brackets from `start` up to `stop`, or to where they close.

    Brackets that are never closed end before the next line that is a key of the block around
    them, so that a half-written line does not swallow the rest of the text.
    """

    def __init__(self, text: str, start: int, *, path: Path, indent: int, stop: int) -> None:
        self.entries: list[Entry] = []
        self.open: list[_Container] = []
        self.word = start
        """Where the word that ends at `end` begins."""
        self.in_comment = False
        self._text = text
        self._path = path
        self._indent = indent
        self._stop = stop
        self.end = self._run(start)
        self.closed = not self.open

    def _run(self, start: int) -> int:
        pos = start
        while pos < self._stop:
            after = self._step(pos)
            if after is None:
                self._end_entry(pos)
                return pos
            pos = after
            if not self.open:
                return pos
        self._end_entry(pos)
        return pos

    def _step(self, pos: int) -> int | None:
        """Return the position after the token at `pos`; None where reading stops."""
        character = self._text[pos]
        if character == "\n":
            return None if self._block_goes_on(pos + 1) else self._skip_space(pos)
        if character in "{[":
            if len(self.open) >= _DEEPEST:
                return None
            self._push(character)
        elif character in "}]":
            self._end_entry(pos)
            self.open.pop()
        elif character == ",":
            self._end_entry(pos)
        elif character in "\"'" and not self._text[self.word : pos].strip():
            return self._string_end(pos)
        elif character == "#" and self._text[pos - 1] in " \t\n":
            return self._comment_end(pos)
        elif character == ":" and self._is_key_end(pos):
            self._start_value(pos)
        else:
            return self._skip_space(pos) if character in " \t" else pos + 1
        self.word = pos + 1
        return pos + 1

    def _push(self, bracket: str) -> None:
        path = self._path
        if self.open:
            top = self.open[-1]
            path = (*top.path, top.key or "") if top.is_map else (*top.path, ITEM)
        self.open.append(_Container(path, bracket == "{"))

    def _skip_space(self, pos: int) -> int:
        if not self._text[self.word : pos].strip():
            self.word = pos + 1
        return pos + 1

    def _string_end(self, pos: int) -> int:
        end = self._text.find(self._text[pos], pos + 1, self._stop)
        return self._stop if end < 0 else end + 1

    def _comment_end(self, pos: int) -> int:
        end = self._text.find("\n", pos, self._stop)
        self.in_comment = end < 0
        return self._stop if end < 0 else end

    def _is_key_end(self, pos: int) -> bool:
        top = self.open[-1]
        behind = self._text[pos + 1 : pos + 2]
        return top.is_map and top.key is None and (not behind or behind in " \t\n,}]")

    def _start_value(self, pos: int) -> None:
        top = self.open[-1]
        top.key_start, top.key_end = self.word, pos
        top.key = unquoted(self._text[self.word : pos])

    def _end_entry(self, pos: int) -> None:
        top = self.open[-1] if self.open else None
        if top is None or top.key is None:
            return
        start = min(self.word, pos)
        written = self._text[start:pos]
        self.entries.append(
            Entry(
                (*top.path, top.key),
                top.key_start,
                top.key_end,
                start,
                start + len(written.rstrip()),
            )
        )
        top.key = None

    def _block_goes_on(self, line_start: int) -> bool:
        match = BLOCK_KEY.match(self._text, line_start)
        return match is not None and len(match[1]) <= self._indent
