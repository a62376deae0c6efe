"""Finds what a cursor is on: a key or a value, and the section it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmops_kernel.config.assist.text.entries import ITEM, MOST_CHARACTERS, comment_start, unquoted
from llmops_kernel.config.assist.text.flow import Flow
from llmops_kernel.config.assist.text.outline import (
    KEY,
    Brackets,
    Level,
    Outline,
    above,
    enter_items,
    path_of,
)
from llmops_kernel.config.reading.document import Path

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
    found = KEY.match(line, at)
    if found is not None and column >= found.end():
        return _value(above(stack, at), line, column, found)
    stack = above(stack, at)
    parent, offset = path_of(stack), outline.starts[index]
    key_end = found.end() - 1 if found is not None else _word_end(line, column)
    own_line = range(offset, offset + len(line) + 1)
    beside = [entry for entry in outline.entries if entry.path[:-1] == parent]
    here = {entry.path[-1] for entry in beside if entry.key_start not in own_line}
    is_item = bool(stack) and stack[-1].is_item and found is None
    return Cursor(
        path=parent,
        is_value=is_item,
        prefix=line[at:column],
        start=at,
        end=max(key_end, column),
        siblings=frozenset(here),
        has_colon=found is not None,
        indent=at,
    )


def _value(stack: tuple[Level, ...], line: str, column: int, found: re.Match[str]) -> Cursor | None:
    """Behind `key: `."""
    if column == found.end():
        return None  # a value needs a space before it
    rest = line[found.end() :]
    start = min(column, found.end() + len(rest) - len(rest.lstrip(" \t")))
    end = len(line[: comment_start(line, found.end())].rstrip())
    return Cursor(
        path=(*path_of(stack), unquoted(found[1])),
        is_value=True,
        prefix=line[start:column],
        start=start,
        end=max(end, column),
    )


def _word_end(text: str, offset: int) -> int:
    found = _WORD_END.search(text, offset)
    return found.start() if found else len(text)
