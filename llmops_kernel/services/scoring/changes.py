"""How metrics changed: means of common rows with intervals, and totals of whole tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from llmops_kernel.metrics.bootstrap import Floats, Interval, mean_difference, ratio_of_sums
from llmops_kernel.metrics.direction import better_of
from llmops_kernel.views.score_comparison import MetricChange

PREFERRED = (
    "exact_match",
    "field_f1",
    "grounded",
    "judge",
    "rougeL",
    "sentence_bleu",
    "perplexity",
)
"""What says that a row got better, the first that both have."""


def gain(name: str, before: Floats, after: Floats) -> Floats:
    """Return how much each row got better; NaN where nobody knows."""
    direction = better_of(name)
    sign = {"higher": 1.0, "lower": -1.0}.get(direction or "", np.nan)
    return (after - before) * sign


def of_rows(name: str, before: Floats, after: Floats, *, seed: int) -> MetricChange:
    """Compare the means of the rows that have the metric in both."""
    both = np.isfinite(before) & np.isfinite(after)
    found = mean_difference(before[both], after[both], seed=seed)
    means = (float(before[both].mean()), float(after[both].mean())) if both.any() else None
    return _change(name, before, after, values=means, found=found)


def of_perplexity(columns: Floats, before: Floats, after: Floats, *, seed: int) -> MetricChange:
    """Compare exp(-sum of log p / sum of tokens); columns: log p and tokens, before and after."""
    known = columns[~np.isnan(columns).any(axis=1)]
    found = ratio_of_sums(known, lambda s, _: np.diff(_perplexities(s), axis=1)[:, 0], seed=seed)
    values = None
    if found is not None:
        first, second = _perplexities(known.sum(axis=0)[None, :])[0]
        values = (float(first), float(second))
    return _change("perplexity", before, after, values=values, found=found)


def of_tables(
    before: Mapping[str, float], after: Mapping[str, float], *, shown: Collection[str]
) -> list[MetricChange]:
    """Compare metrics that only whole tables have, such as the BLEU of a corpus."""
    return [
        MetricChange(
            name, before[name], after[name], after[name] - before[name], better=better_of(name)
        )
        for name in before
        if name in after and name not in shown
    ]


def _perplexities(sums: Floats) -> Floats:
    """[n, 4] sums -> [n, 2] perplexities."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.exp(-sums[:, [0, 2]] / sums[:, [1, 3]])


def _change(
    name: str,
    before: Floats,
    after: Floats,
    *,
    values: tuple[float, float] | None,
    found: Interval | None,
) -> MetricChange:
    both = np.isfinite(before) & np.isfinite(after)
    direction = better_of(name)
    moved = gain(name, before, after)[both]
    return MetricChange(
        name=name,
        before=values[0] if values else None,
        after=values[1] if values else None,
        delta=found.value if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        rows=int(both.sum()),
        better=direction,
        num_better=int((moved > 0).sum()) if direction else None,
        num_worse=int((moved < 0).sum()) if direction else None,
        num_same=int((moved == 0).sum()) if direction else None,
    )
