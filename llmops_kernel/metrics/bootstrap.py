"""The confidence of a difference: the paired percentile bootstrap.

Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13: rows are drawn with
replacement, each with the values of both sides, as the same row was scored twice. For scores of
language systems: Koehn, "Statistical Significance Tests for Machine Translation Evaluation", EMNLP
2004. Pure, and the same numbers for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 1000
_FEWEST = 200
_DRAWS = 100_000_000
"""Draws that one interval may cost, some seconds; very many rows get fewer resamples."""
_CHUNK = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


def mean_difference(
    before: Floats, after: Floats, *, seed: int = 0, level: float = 0.95
) -> Interval | None:
    """Return mean(after) - mean(before) of paired rows; None without a row.

    Of one row the interval is a point, as nothing is known about others.
    """
    difference = after - before
    if not len(difference):
        return None
    values, counts = np.unique(difference, return_counts=True)
    if len(values) * 4 <= len(difference):
        # The same distribution for less: a resample is how often it has each distinct value.
        means = _multinomial_means(values, counts, np.random.default_rng(seed))
        return _interval(float(difference.mean()), means, level)
    return ratio_of_sums(difference[:, None], lambda s, n: s[:, 0] / n, seed=seed, level=level)


def ratio_of_sums(
    columns: Floats,
    statistic: Callable[[Floats, int], Floats],
    *,
    seed: int = 0,
    level: float = 0.95,
) -> Interval | None:
    """Return a statistic of sums over rows, such as a perplexity; None without a row.

    `columns`: [rows, k]. `statistic`: sums [resamples, k] and the number of rows -> [resamples].
    """
    rows = len(columns)
    if not rows:
        return None
    generator = np.random.default_rng(seed)
    resamples = _resamples(rows)
    sums = np.empty((resamples, columns.shape[1]))
    step = max(1, _CHUNK // rows)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = generator.integers(rows, size=(count, rows))
        for k in range(columns.shape[1]):
            sums[start : start + count, k] = columns[:, k][drawn].sum(axis=1)
    value = statistic(columns.sum(axis=0)[None, :], rows)[0]
    return _interval(float(value), statistic(sums, rows), level)


def _multinomial_means(
    values: Floats, counts: NDArray[np.int64], generator: np.random.Generator
) -> Floats:
    rows = int(counts.sum())
    resamples = _resamples(len(values))
    step = max(1, _CHUNK // len(values))
    means = np.empty(resamples)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = generator.multinomial(rows, counts / rows, size=count)
        means[start : start + count] = drawn @ values / rows
    return means


def _resamples(size: int) -> int:
    return int(min(RESAMPLES, max(_FEWEST, _DRAWS // size)))


def _interval(value: float, resampled: Floats, level: float) -> Interval | None:
    if not np.isfinite(value) or not np.isfinite(resampled).all():
        return None
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    # Both ends come from sums in another order than the value's.
    return Interval(value, min(float(low), value), max(float(high), value))
