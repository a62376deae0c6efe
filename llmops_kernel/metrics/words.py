"""Words of a text, and how many two texts share in the same order."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Return the letters and digits of a text in lower case, split at all else.

    For ASCII these are the tokens of Lin's ROUGE script. Other scripts count as well; in the
    original an accented letter ends a word.
    """
    return _WORD.findall(text.lower())


def lcs_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Each row of the usual table is in the bits of one integer: Hyyrö, "Bit-Parallel LCS-length
    Computation Revisited", AWOCA 2004.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(a)) - 1
    row = full
    for word in b:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(a) - row.bit_count()


def similarity(a: str, b: str) -> float:
    """Return 2 LCS / (words of both), 0..1: ROUGE-L of the texts; 1 for equal ones."""
    if a == b:
        return 1.0
    ours, theirs = words(a), words(b)
    total = len(ours) + len(theirs)
    return 2 * lcs_length(ours, theirs) / total if total else 0.0
