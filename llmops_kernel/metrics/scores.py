"""What metrics of models and answers share: which way is better, grades, words of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

_LOWER_WORDS = frozenset({"loss", "logloss", "perplexity", "error", "errors", "wer", "cer", "kl"})
_BETWEEN = re.compile(r"[_./\s-]+")
_LOWER = frozenset({"ece", "mse", "grounded_unsupported", "grounded_refused_wrongly"})
_NEITHER = frozenset({"confidence", "grounded_refused", "grounded_refused_unknown"})
_SHARE_OF_GRADE = "judge_"


def better_of(metric: str) -> Literal["lower", "higher"] | None:
    """Return which way is better, None for neither; of a user's metric higher is better."""
    if metric in _NEITHER or metric.startswith(_SHARE_OF_GRADE):
        return None
    return "lower" if metric in _LOWER or lower_is_better(metric) else "higher"


def lower_is_better(metric: str) -> bool:
    """Return whether an evaluation metric of this name improves when it falls.

    By its whole words: `eval_wer/clean` does, `power` and `exact_answer` do not.
    """
    return not _LOWER_WORDS.isdisjoint(_BETWEEN.split(metric.lower()))


# --- The grades of an LLM judge: where they are, and their places as numbers ---


FOLDER: Final = "_judge"
"""Below the judged output: names with a line before them are no part of a table."""
ROW: Final = "row_number"
"""The column of an output that identifies a row, in what is kept beside it."""
RETRIEVAL: Final = "_retrieval.parquet"
"""Beside the rows of a scoring of vectors: the figures of each query, by its first row."""
NEAREST: Final = "nearest"
"""Its column with the text that is nearest to the query."""
CORPUS: Final = b"corpus"
"""Key of its metadata: a fingerprint of the texts among which the queries look."""


def grade_value(grade: str | None, grades: Sequence[str]) -> float | None:
    """Return a grade's place as a number: 1 for the best, 0 for the worst, evenly between them."""
    if grade is None or grade not in grades or len(grades) < 2:
        return None
    return 1 - grades.index(grade) / (len(grades) - 1)


# --- Words of a text, and how many two texts share in the same order ---


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
