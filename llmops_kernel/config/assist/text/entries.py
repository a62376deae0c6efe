"""One `key: value` of a text that may be half-written."""

from __future__ import annotations

from dataclasses import dataclass

from llmops_kernel.config.reading.document import Path

ITEM = "-"
"""Stands for any item of a list in a path."""
MOST_CHARACTERS = 256 * 1024
"""Longest text that is read while it is edited: a hundred times a long config."""


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
