"""Two scorings side by side, as sent to the browser."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from llmops_kernel.server.wire.common import Wire

RowsKind = Literal[
    "all", "better", "worse", "same", "flipped", "changed", "error", "only_before", "only_after"
]


class ScoredMetric(Wire):
    """One metric of both scorings; unknown is null."""

    name: str
    before: float | None
    after: float | None
    delta: float | None
    low: float | None
    """Ends of the delta's 95 % confidence interval; null for a metric that rows do not have."""
    high: float | None
    rows: int | None
    """Rows that have the metric in both; null for a metric of the whole table."""
    better: Literal["lower", "higher"] | None
    num_better: int | None
    num_worse: int | None
    num_same: int | None
    texts: list[str]
    """Name, both values, delta, interval, rows better and worse, as tables show them."""


class RowsOfKind(Wire):
    """How many rows there are of a kind."""

    kind: RowsKind
    label: str
    """`flipped`, `only in the first` ..."""
    rows: int


class ScoreComparison(Wire):
    """What differs between the outputs of two scorings, the older run first."""

    before: str
    """Run id."""
    after: str
    metrics: list[ScoredMetric]
    row_metrics: list[str]
    """Metrics that rows have in both: what rows can be ordered by."""
    metric: str | None
    """The one that better and worse are counted by."""
    counts: list[RowsOfKind]
    errors_before: int
    errors_after: int
    output_rows: int
    """Rows with an output in both."""
    identical: float | None
    """Share of them with the same output, 0..1."""
    similarity: float | None
    """Mean similarity of their outputs, 0..1."""
    sampled: int
    """Outputs that differ, of which the similarity was computed."""


class ScoredRow(Wire):
    """One row of both scorings; texts over 20,000 characters are cut."""

    key: str
    prompt: str
    reference: str | None
    before: str | None
    """The output; null for a row without one."""
    after: str | None
    before_error: str
    after_error: str
    before_metrics: dict[str, float | None]
    after_metrics: dict[str, float | None]
    is_cut: bool
    """Whether a text is longer than what is sent."""


class ScoredRows(Wire):
    """One page of the rows of a kind."""

    kind: RowsKind
    metric: str | None
    """The metric that says what is better or worse."""
    total: int
    offset: int
    rows: list[ScoredRow]


WIRE_MODELS: tuple[type[BaseModel], ...] = (ScoreComparison, ScoredRows)
