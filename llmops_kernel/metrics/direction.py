"""The direction in which a metric is better, by its name."""

from __future__ import annotations

import re
from typing import Literal

_LOWER_WORDS = frozenset({"loss", "logloss", "perplexity", "error", "errors", "wer", "cer"})
_BETWEEN = re.compile(r"[_./\s-]+")
_LOWER = frozenset({"ece", "grounded_unsupported", "grounded_refused_wrongly"})
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
