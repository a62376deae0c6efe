"""Grounded answer or refusal: does the context support the answer, and was a refusal right?

Support is K-Precision: the share of the answer's words that are in the context, each as often as it
is there. Adlakha et al., "Evaluating Correctness and Faithfulness of Instruction-Following Models
for Question Answering", TACL 2024 (arXiv 2307.16877); words are counted as in their code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from llmops_kernel.metrics.scores import words

Outcome = Literal[
    "supported", "unsupported", "refused_rightly", "refused_wrongly", "refused_unknown"
]
OUTCOMES: tuple[Outcome, ...] = (
    "supported",
    "unsupported",
    "refused_rightly",
    "refused_wrongly",
    "refused_unknown",
)
_GOOD: dict[Outcome, float | None] = {
    "supported": 1.0,
    "unsupported": 0.0,
    "refused_rightly": 1.0,
    "refused_wrongly": 0.0,
    "refused_unknown": None,
}
# SQuAD's normalization, which the paper uses: articles say nothing about support.
_ARTICLES = frozenset({"a", "an", "the"})
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'"})
_YES, _NO = frozenset({"true", "yes", "1", "1.0"}), frozenset({"false", "no", "0", "0.0"})


def k_precision(answer: str, context: str) -> float:
    """Return the share of the answer's words that the context has, 0..1; 0 for no word."""
    answer_words, context_words = _content(answer), _content(context)
    return (answer_words & context_words).total() / answer_words.total() if answer_words else 0.0


class Refusals:
    """Finds phrases of a refusal in any case, as whole words."""

    def __init__(self, phrases: Sequence[str]) -> None:
        texts = [re.escape(_folded(phrase)) for phrase in phrases if phrase.strip()]
        self._any = re.compile(rf"(?<!\w)(?:{'|'.join(texts)})(?!\w)") if texts else None

    def found_in(self, answer: str) -> bool:
        return self._any is not None and self._any.search(_folded(answer)) is not None


def outcome(
    *, is_refusal: bool, support: float, threshold: float, answerable: bool | None
) -> Outcome:
    """Judge one answer. Where the context has no answer, none can be supported by it."""
    if is_refusal:
        if answerable is None:
            return "refused_unknown"
        return "refused_wrongly" if answerable else "refused_rightly"
    if answerable is False:
        return "unsupported"
    return "supported" if support >= threshold else "unsupported"


def is_good(judged: Outcome) -> float | None:
    """Return 1.0 for a supported answer and a right refusal, None where nobody knows."""
    return _GOOD[judged]


def as_answerable(value: Any) -> bool | None:
    """Read a column's value; None for all that is neither yes nor no."""
    text = str(value).strip().lower()
    return True if text in _YES else False if text in _NO else None


def _content(text: str) -> Counter[str]:
    return Counter(word for word in words(text) if word not in _ARTICLES)


def _folded(text: str) -> str:
    return " ".join(text.translate(_APOSTROPHES).lower().split())
