"""Two scorings of the same rows: metrics with intervals, what got better or worse, stability."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from llmops_kernel.errors import ComparisonError
from llmops_kernel.metrics.bootstrap import Floats, Interval, mean_difference, ratio_of_sums
from llmops_kernel.metrics.scores import better_of, similarity
from llmops_kernel.services.scoring.join import (
    ROW_NUMBER,
    Bools,
    Ints,
    check_same_input,
    join,
    read_side,
    shown,
)
from llmops_kernel.services.scoring.output import METRIC_PREFIX, ScoredOutput
from llmops_kernel.views.score_comparison import (
    ROW_KINDS,
    ComparedRow,
    MetricChange,
    RowKind,
    RowsPage,
    ScoreDifference,
    Stability,
)

SIMILAR_ROWS = 500
"""Different outputs that are read again to see how different they are."""
MAX_PAGE = 1000
_COUNTED: tuple[RowKind, ...] = (
    "all", "better", "worse", "same", "flipped", "changed", "only_before", "only_after"
)  # fmt: skip


class OutputComparison:
    """Two finished outputs, joined by the key column.

    Raises ComparisonError for outputs that are not finished, of different inputs, without a common
    key, or with a key that is not unique. Texts stay on disk:
    two outputs of a million rows and five metrics need about 0.4 GB of memory.
    """

    def __init__(
        self, before: ScoredOutput, after: ScoredOutput, *, key: str = "", seed: int = 0
    ) -> None:
        self.outputs = (before, after)
        self.key = key or ROW_NUMBER
        self._seed = seed
        names = _metric_names(before, after)
        self._before = read_side(before, self.key, names)
        self._after = read_side(after, self.key, names)
        self._rows = join(self._before, self._after)
        if not len(self._rows.left):
            raise _nothing_common(self)
        if self.key == ROW_NUMBER:
            check_same_input(before, after, self._rows)
        if before.corpus and after.corpus and before.corpus != after.corpus:
            raise ComparisonError(
                f"The queries of {before.name} look among other texts than those of {after.name}:"
                " what they find cannot be compared.",
                remedy="score the same table with both; rows with an error add no text",
            )
        self.metric_names = tuple(
            name for name in names if METRIC_PREFIX + name in before.columns & after.columns
        )

    @cached_property
    def difference(self) -> ScoreDifference:
        """Return metrics of both, counts of rows, and stability of the outputs."""
        before, after = self.outputs
        return ScoreDifference(
            before=before.name,
            after=after.name,
            metrics=self.metrics,
            metric=self.metric,
            counts={kind: len(self._of_kind(kind, self.metric)) for kind in self._row_kinds()},
            errors_before=int(self._before.is_error.sum()),
            errors_after=int(self._after.is_error.sum()),
            stability=self.stability,
        )

    @cached_property
    def metrics(self) -> tuple[MetricChange, ...]:
        """Return every metric: over the rows that both have, then over the whole tables."""
        rows = self._rows
        changes = [
            of_rows(name, *self._values(name), seed=self._seed)
            for name in self.metric_names
            if name != "perplexity"
        ]
        if "perplexity" in self.metric_names:
            sides = ((self._before, rows.left), (self._after, rows.right))
            columns = [
                part[positions] for side, positions in sides for part in (side.logprob, side.tokens)
            ]
            values = self._values("perplexity")
            changes.append(of_perplexity(np.stack(columns, axis=1), *values, seed=self._seed))
        first, second = self.outputs
        totals = of_tables(first.totals, second.totals, excluded=self.metric_names)
        return (*changes, *totals)

    @cached_property
    def metric(self) -> str | None:
        """Return the metric that says what is better, unless another is named."""
        comparable = [name for name in self.metric_names if better_of(name)]
        first = (name for name in PREFERRED if name in comparable)
        return next(first, comparable[0] if comparable else None)

    @cached_property
    def stability(self) -> Stability:
        """Return how many outputs stayed the same, and how similar the others are."""
        before, after = self._before.output[self._rows.left], self._after.output[self._rows.right]
        has_both = (before != 0) & (after != 0)
        total, num_same = int(has_both.sum()), int((has_both & (before == after)).sum())
        if not total:
            return Stability(rows=0, identical=None, similarity=None, sampled=0)
        different = np.flatnonzero(has_both & (before != after))
        sample = np.random.default_rng(self._seed).permutation(different)[:SIMILAR_ROWS]
        alike = self._similarities(np.sort(sample))
        share = num_same / total
        rest = (1 - share) * sum(alike) / len(alike) if alike else 0.0
        return Stability(rows=total, identical=share, similarity=share + rest, sampled=len(alike))

    def rows(
        self,
        kind: RowKind = "all",
        *,
        metric: str | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> RowsPage:
        """Return rows of one kind, with texts and metrics.

        `metric` says what is better or worse, largest difference first; other kinds keep the
        order of the first output. `limit`: at most 1,000.
        """
        if kind not in ROW_KINDS:
            raise ComparisonError(
                f"There is no kind of rows {kind!r}.", remedy=f"use one of {', '.join(ROW_KINDS)}"
            )
        metric = self._require_metric(metric)
        positions = self._of_kind(kind, metric)
        offset, limit = max(offset, 0), min(max(limit, 0), MAX_PAGE)
        page = positions[offset : offset + limit]
        rows = read(
            self.outputs, *self._positions(kind, page), key=self.key, metrics=self.metric_names
        )
        return RowsPage(kind=kind, metric=metric, total=len(positions), offset=offset, rows=rows)

    def frame(
        self, kind: RowKind, *, metric: str | None = None, offset: int = 0, limit: int = MAX_PAGE
    ) -> pd.DataFrame:
        """Return rows as a table; `attrs["total"]` is how many there are of the kind."""
        pages = [self.rows(kind, metric=metric, offset=offset, limit=limit)]
        while len(pages[-1].rows) == MAX_PAGE:
            num_read = len(pages) * MAX_PAGE
            pages.append(
                self.rows(kind, metric=metric, offset=offset + num_read, limit=limit - num_read)
            )
        rows = [row for page in pages for row in page.rows]
        data = pd.DataFrame([flat(row) for row in rows], columns=names(self.metric_names))
        data.attrs["total"] = pages[0].total
        return data

    def _require_metric(self, metric: str | None) -> str | None:
        if metric is None:
            return self.metric
        if metric not in self.metric_names:
            names_of_both = ", ".join(self.metric_names) or "none"
            raise ComparisonError(
                f"The rows of both scorings do not have the metric {metric!r}.",
                remedy=f"use one that both have: {names_of_both}",
            )
        return metric

    def _row_kinds(self) -> tuple[RowKind, ...]:
        skipped = () if self.metric else ("better", "worse", "same")
        return tuple(kind for kind in _COUNTED if kind not in skipped)

    def _positions(self, kind: RowKind, page: Ints) -> tuple[list[int | None], list[int | None]]:
        """Return where the rows of a page are in both outputs."""
        nowhere: list[int | None] = [None] * len(page)
        if kind == "only_before":
            return _ints(self._rows.only_left[page]), nowhere
        if kind == "only_after":
            return nowhere, _ints(self._rows.only_right[page])
        return _ints(self._rows.left[page]), _ints(self._rows.right[page])

    def _of_kind(self, kind: RowKind, metric: str | None) -> Ints:
        """Return indexes into the common rows, or into those of one side."""
        if kind in ("only_before", "only_after"):
            side = self._rows.only_left if kind == "only_before" else self._rows.only_right
            return np.arange(len(side))
        if kind in ("better", "worse", "same"):
            return self._moved_rows(kind, metric)
        masks: dict[str, Callable[[], Bools]] = {
            "all": lambda: np.ones(len(self._rows.left), dtype=bool),
            "flipped": self._flipped,
            "changed": lambda: self._changed_rows("output"),
            "error": self._failed_rows,
        }
        return np.flatnonzero(masks[kind]())

    def _moved_rows(self, kind: RowKind, metric: str | None) -> Ints:
        if metric is None:
            return np.empty(0, dtype=np.int64)
        gains = gain(metric, *self._values(metric))
        if kind == "same":
            return np.flatnonzero(gains == 0)
        signed = gains if kind == "better" else -gains
        positions = np.flatnonzero(signed > 0)
        return positions[np.argsort(-signed[positions], kind="stable")]

    def _flipped(self) -> Bools:
        """Return for which rows the label, the exact match, or what a query finds has changed."""
        flipped = self._changed_rows("label")
        for name in ("exact_match", FOUND):
            if name in self.metric_names:
                before, after = self._values(name)
                flipped |= np.isfinite(before) & np.isfinite(after) & ((before > 0) != (after > 0))
        return flipped

    def _changed_rows(self, column: str) -> Bools:
        before = getattr(self._before, column)[self._rows.left]
        after = getattr(self._after, column)[self._rows.right]
        changed: Bools = (before != 0) & (after != 0) & (before != after)
        return changed

    def _failed_rows(self) -> Bools:
        failed: Bools = (
            self._before.is_error[self._rows.left] | self._after.is_error[self._rows.right]
        )
        return failed

    def _values(self, metric: str) -> tuple[Any, Any]:
        before = self._before.metrics[metric][self._rows.left]
        return before, self._after.metrics[metric][self._rows.right]

    def _similarities(self, sample: Ints) -> list[float]:
        sides = zip(self.outputs, (self._rows.left, self._rows.right), strict=True)
        before, after = (
            output.rows([int(i) for i in positions[sample]], ["output"])
            for output, positions in sides
        )
        return [similarity(a["output"], b["output"]) for a, b in zip(before, after, strict=True)]


def _metric_names(*outputs: ScoredOutput) -> tuple[str, ...]:
    names = (column for output in outputs for column in sorted(output.columns))
    prefixed = dict.fromkeys(name for name in names if name.startswith(METRIC_PREFIX))
    return tuple(name.removeprefix(METRIC_PREFIX) for name in prefixed)


def _ints(values: Ints) -> list[int | None]:
    return [int(value) for value in values]


def _nothing_common(compared: OutputComparison) -> ComparisonError:
    before, after = compared.outputs
    first_before, first_after = shown(compared._before.keys[0]), shown(compared._after.keys[0])
    return ComparisonError(
        f"No row of {before.name} has the same {compared.key!r} as a row of {after.name}: the"
        f" first ones are {first_before} and {first_after}.",
        remedy="compare two scorings of the same table",
    )


# --- Changes of metrics: means of common rows with intervals, and totals of whole tables ---


FOUND = "recall@10"
"""A query flips where it finds one of its texts among the first ten in one scoring only."""
PREFERRED = (
    "exact_match",
    FOUND,
    "mse",
    "field_f1",
    "grounded",
    "judge",
    "rougeL",
    "sentence_bleu",
    "perplexity",
)
"""Metrics that say whether a row got better; the first that both have is used."""


def gain(name: str, before: Floats, after: Floats) -> Floats:
    """Return how much each row got better; NaN where nobody knows."""
    direction = better_of(name)
    sign = {"higher": 1.0, "lower": -1.0}.get(direction or "", np.nan)
    return (after - before) * sign


def of_rows(name: str, before: Floats, after: Floats, *, seed: int) -> MetricChange:
    """Compare the means of the rows that have the metric in both."""
    finite = np.isfinite(before) & np.isfinite(after)
    interval = mean_difference(before[finite], after[finite], seed=seed)
    means = (float(before[finite].mean()), float(after[finite].mean())) if finite.any() else None
    return _change(name, before, after, values=means, interval=interval)


def of_perplexity(columns: Floats, before: Floats, after: Floats, *, seed: int) -> MetricChange:
    """Compare exp(-sum of log p / sum of tokens); columns: log p and tokens, before and after."""
    complete = columns[~np.isnan(columns).any(axis=1)]
    interval = ratio_of_sums(
        complete, lambda s, _: np.diff(_perplexities(s), axis=1)[:, 0], seed=seed
    )
    values = None
    if interval is not None:
        first, second = _perplexities(complete.sum(axis=0)[None, :])[0]
        values = (float(first), float(second))
    return _change("perplexity", before, after, values=values, interval=interval)


def of_tables(
    before: Mapping[str, float], after: Mapping[str, float], *, excluded: Collection[str]
) -> list[MetricChange]:
    """Compare metrics that only whole tables have, such as the BLEU of a corpus."""
    return [
        MetricChange(
            name, before[name], after[name], after[name] - before[name], better=better_of(name)
        )
        for name in before
        if name in after and name not in excluded
    ]


def _perplexities(sums: Floats) -> Floats:
    """Return [n, 2] perplexities of [n, 4] sums."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.exp(-sums[:, [0, 2]] / sums[:, [1, 3]])


def _change(
    name: str,
    before: Floats,
    after: Floats,
    *,
    values: tuple[float, float] | None,
    interval: Interval | None,
) -> MetricChange:
    finite = np.isfinite(before) & np.isfinite(after)
    direction = better_of(name)
    moved = gain(name, before, after)[finite]
    return MetricChange(
        name=name,
        before=values[0] if values else None,
        after=values[1] if values else None,
        delta=interval.value if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        rows=int(finite.sum()),
        better=direction,
        num_better=int((moved > 0).sum()) if direction else None,
        num_worse=int((moved < 0).sum()) if direction else None,
        num_same=int((moved == 0).sum()) if direction else None,
    )


# --- Rows of a comparison: texts and metrics of both outputs, read when needed ---


Positions = Sequence[int | None]


def read(
    outputs: tuple[ScoredOutput, ScoredOutput],
    before: Positions,
    after: Positions,
    *,
    key: str,
    metrics: Sequence[str],
) -> tuple[ComparedRow, ...]:
    """Return rows by their positions in both outputs; None where an output does not have it."""
    columns = [key, "prompt", "reference", "output", "error"]
    columns += [METRIC_PREFIX + name for name in metrics]
    rows_before = _rows(outputs[0], before, columns)
    rows_after = _rows(outputs[1], after, columns)
    return tuple(
        _row(a, b, key=key, metrics=metrics) for a, b in zip(rows_before, rows_after, strict=True)
    )


_TEXTS = ("key", "prompt", "reference", "before", "after", "before_error", "after_error")


def names(metrics: Sequence[str]) -> list[str]:
    """Return the columns of a table of rows: texts, then `before_<metric>`, `after_<metric>`."""
    sides = [f"{side}_{name}" for name in metrics for side in ("before", "after")]
    return [*_TEXTS, *sides]


def flat(row: ComparedRow) -> dict[str, Any]:
    """Return a row as one line of such a table."""
    texts = {name: getattr(row, name) for name in _TEXTS}
    before = {f"before_{name}": value for name, value in row.before_metrics.items()}
    after = {f"after_{name}": value for name, value in row.after_metrics.items()}
    return texts | before | after


def _rows(
    output: ScoredOutput, positions: Positions, columns: Sequence[str]
) -> list[dict[str, Any]]:
    present = [position for position in positions if position is not None]
    values = iter(output.rows(present, list(dict.fromkeys(columns))))
    return [{} if position is None else next(values) for position in positions]


def _row(a: dict[str, Any], b: dict[str, Any], *, key: str, metrics: Sequence[str]) -> ComparedRow:
    row = a or b
    return ComparedRow(
        key=row[key],
        prompt=_text(row["prompt"]) or "",
        reference=_text(row["reference"]),
        before=_text(a.get("output")),
        after=_text(b.get("output")),
        before_error=a.get("error") or "",
        after_error=b.get("error") or "",
        before_metrics=_metrics(a, metrics),
        after_metrics=_metrics(b, metrics),
    )


def _metrics(row: dict[str, Any], names: Sequence[str]) -> dict[str, float | None]:
    return {name: _number(row.get(METRIC_PREFIX + name)) for name in names}


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _text(value: Any) -> str | None:
    """Return a chat and other nested values as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
