"""Calibration: whether answers given with probability p are correct in a share p of the rows.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, equations 2, 3 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from llmops_kernel.score.evaluate.text_metrics import plain

BINS = 15


@dataclass
class Bin:
    """The rows whose confidence is in one interval of width 1/15, open below and closed above."""

    rows: int = 0
    confidence: float = 0.0
    """Sum of the rows' confidences."""
    correct: int = 0


def prediction(scores: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the most probable choice and its probability; None when a number is unusable."""
    if not scores or not all(math.isfinite(p) and -1e-6 <= p <= 1 + 1e-6 for p in scores.values()):
        return None
    label = max(scores, key=lambda choice: scores[choice])
    return label, min(max(scores[label], 0.0), 1.0)


def is_correct(label: str, reference: str) -> bool:
    return plain(label) == plain(reference)


def bin_of(confidence: float) -> int:
    """Return which of the 15 bins: bin m has the confidences in (m / 15, (m + 1) / 15]."""
    return max(math.ceil(confidence * BINS) - 1, 0)


def expected_error(bins: list[Bin]) -> float | None:
    """Return ECE: |accuracy - mean confidence| of the bins, weighted by rows; None for no row."""
    total = sum(bin_.rows for bin_ in bins)
    if not total:
        return None
    return sum(abs(bin_.correct - bin_.confidence) for bin_ in bins) / total


def reliability(bins: list[Bin]) -> list[dict[str, float | int | None]]:
    """Return the reliability diagram's table, one row a bin; an empty bin has no accuracy."""
    return [
        {
            "from": index / BINS,
            "to": (index + 1) / BINS,
            "rows": bin_.rows,
            "confidence": bin_.confidence / bin_.rows if bin_.rows else None,
            "accuracy": bin_.correct / bin_.rows if bin_.rows else None,
        }
        for index, bin_ in enumerate(bins)
    ]
