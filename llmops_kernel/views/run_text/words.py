"""Which words of a text are new."""

from __future__ import annotations

import difflib
import functools
import re

Pieces = list[tuple[str, bool]]
"""Pieces of a text in order, each with whether it is new; together they are the text."""
_MOST_WORDS = 2_000


@functools.lru_cache(maxsize=1024)  # Each snapshot of a live run compares the same answers.
def new_words(before: str | None, text: str) -> Pieces:
    """Return the text in pieces; new is what a longest common subsequence of words lacks.

    Nothing is new without a text before. Of more than 2,000 words on one side (difflib takes
    quadratic time) all between a common beginning and a common end is new. Callers share the
    list and must not change it.
    """
    if before is None or not text:
        return [(text, False)] if text else []
    old, new = _words(before), _words(text)
    if max(len(old), len(new)) > _MOST_WORDS:
        return _between_ends(old, new)
    # With autojunk the frequent words of a long text would count as new.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        ("".join(new[begin:end]), kind != "equal")
        for kind, _, _, begin, end in matcher.get_opcodes()
        if end > begin
    ]


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _between_ends(old: list[str], new: list[str]) -> Pieces:
    shortest = min(len(old), len(new))
    head = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    rest = shortest - head
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    end = len(new) - tail
    parts = ((new[:head], False), (new[head:end], True), (new[end:], False))
    return [("".join(words), is_new) for words, is_new in parts if words]
