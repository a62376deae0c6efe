"""Reads `{a: 1, b: [c]}` however far it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmops_kernel.config.assist.text.entries import ITEM, Entry, unquoted
from llmops_kernel.config.reading.document import Path

BLOCK_KEY = re.compile(r'( *)(?:"[^"\n]*"|[\w.-]+)[ \t]*:(?=\s|$)')

_DEEPEST = 50  # of brackets in brackets; no config has so many


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
        found = self._text.find(self._text[pos], pos + 1, self._stop)
        return self._stop if found < 0 else found + 1

    def _comment_end(self, pos: int) -> int:
        found = self._text.find("\n", pos, self._stop)
        self.in_comment = found < 0
        return self._stop if found < 0 else found

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
        found = BLOCK_KEY.match(self._text, line_start)
        return found is not None and len(found[1]) <= self._indent
