"""Two scorings side by side: what a comparison found, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, Literal, get_args

from llmops_kernel.store.journal.summary import Better
from llmops_kernel.views import format as fmt

RowKind = Literal[
    "all", "better", "worse", "same", "flipped", "changed", "error", "only_before", "only_after"
]
ROW_KINDS: Final[tuple[RowKind, ...]] = get_args(RowKind)
KIND_WORDS: Final[Mapping[RowKind, str]] = {
    "all": "in both",
    "better": "better",
    "worse": "worse",
    "same": "same",
    "flipped": "flipped",
    "changed": "other output",
    "error": "error in one or both",
    "only_before": "only in the first",
    "only_after": "only in the second",
}
_CELL: Final = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"


@dataclass(frozen=True)
class MetricChange:
    """A metric of both scorings. Unknown is None."""

    name: str
    before: float | None
    after: float | None
    delta: float | None
    low: float | None = None
    """Ends of the 95 % confidence interval of the delta; None where rows do not have the metric."""
    high: float | None = None
    rows: int | None = None
    """Rows that have it in both; None for a metric that only the whole table has."""
    better: Better = None
    num_better: int | None = None
    num_worse: int | None = None
    num_same: int | None = None

    @property
    def is_clear(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Stability:
    """Share of the output that stayed the same, over rows with an output in both."""

    rows: int
    identical: float | None
    """Share of rows with the same output, 0..1."""
    similarity: float | None
    """Mean of 2 LCS / (words of both), 0..1; equal outputs count as 1."""
    sampled: int
    """Different outputs whose similarity was computed, drawn at random."""


@dataclass(frozen=True)
class ComparedRow:
    """A row of both scorings; a side that does not have it has empty values."""

    key: Any
    prompt: str
    reference: str | None
    before: str | None
    """The output."""
    after: str | None
    before_error: str = ""
    after_error: str = ""
    before_metrics: Mapping[str, float | None] = field(default_factory=dict)
    after_metrics: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RowsPage:
    """A page of the rows of one kind."""

    kind: RowKind
    metric: str | None
    """The metric that says what is better or worse."""
    total: int
    offset: int
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True)
class ScoreDifference:
    """Differences between the outputs of two scorings, the older first."""

    before: str
    after: str
    metrics: tuple[MetricChange, ...]
    metric: str | None
    """The metric that better and worse are counted by, unless another is named."""
    counts: Mapping[RowKind, int]
    errors_before: int
    errors_after: int
    stability: Stability


def metric_rows(difference: ScoreDifference) -> list[list[str]]:
    """Return heads, then one line a metric: name, both values, delta, interval, rows."""
    heads = ["metric", "before", "after", "delta", "95 % interval", "better", "worse"]
    return [heads, *(_metric_row(change) for change in difference.metrics)]


def _metric_row(change: MetricChange) -> list[str]:
    interval = fmt.DASH
    if change.low is not None and change.high is not None:
        interval = f"{signed(change.low)} .. {signed(change.high)}"
    return [
        change.name,
        fmt.number(change.before),
        fmt.number(change.after),
        signed(change.delta),
        interval,
        whole(change.num_better),
        whole(change.num_worse),
    ]


def count_lines(difference: ScoreDifference) -> list[tuple[str, str]]:
    """Return what is known about rows: (label, text)."""
    lines = [(KIND_WORDS[kind], whole(number)) for kind, number in difference.counts.items()]
    if difference.metric is not None:
        lines = [
            (
                f"{label} ({difference.metric})" if kind in ("better", "worse", "same") else label,
                text,
            )
            for (label, text), kind in zip(lines, difference.counts, strict=True)
        ]
    lines.append(
        ("errors", f"{difference.errors_before:,} before, {difference.errors_after:,} after")
    )
    stability = difference.stability
    lines.append(("identical outputs", fmt.percent(stability.identical)))
    similarity = fmt.number(stability.similarity)
    if stability.sampled:
        similarity += f" (from {stability.sampled:,} of the outputs that differ)"
    lines.append(("mean similarity", similarity))
    return lines


def text_of(difference: ScoreDifference) -> str:
    """Return all of it in plain text, for terminals."""
    lines = metric_rows(difference)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    label_width = max(len(label) for label, _ in count_lines(difference))
    counts = [f"{label.ljust(label_width)}  {text}" for label, text in count_lines(difference)]
    head = f"before: {difference.before}\nafter:  {difference.after}"
    return "\n".join([head, "", *table, "", *counts])


def html_of(difference: ScoreDifference) -> str:
    """Return all of it for a notebook, every text escaped."""
    heads, *lines = metric_rows(difference)
    marks = ["font-weight:600" if change.is_clear else "" for change in difference.metrics]
    body = "".join(
        "<tr>" + "".join(_cell(cell, style=mark) for cell in line) + "</tr>"
        for line, mark in zip(lines, marks, strict=True)
    )
    counts = "".join(
        f"<tr>{_cell(label, style='opacity:.75')}{_cell(text)}</tr>"
        for label, text in count_lines(difference)
    )
    return (
        f"<p><b>before</b> {escape(difference.before)} ·"
        f" <b>after</b> {escape(difference.after)}</p>"
        f"<table><thead><tr>{_heads(heads)}</tr></thead><tbody>{body}</tbody></table>"
        f"<table><tbody>{counts}</tbody></table>"
    )


def shown_of(page: RowsPage) -> str:
    """Return `rows 1 to 20 of 312: flipped`."""
    label = KIND_WORDS[page.kind]
    if not page.rows:
        return f"no rows: {label}"
    last = page.offset + len(page.rows)
    return f"rows {page.offset + 1:,} to {last:,} of {page.total:,}: {label}"


def output_of(text: str | None, error: str) -> str:
    """Return an output as it is shown; of a row without one its error."""
    return f"error: {error}" if error else fmt.DASH if text is None else text


def metric_of(row: ComparedRow, metric: str) -> str:
    """Return `1 → 0`."""
    before, after = row.before_metrics.get(metric), row.after_metrics.get(metric)
    return f"{fmt.number(before)} → {fmt.number(after)}"


def signed(number: float | None) -> str:
    """Return `+0.12`, `0`, or a dash."""
    if number is None or not fmt.known(number):
        return fmt.DASH
    return f"{number:+.3g}" if number else "0"


def whole(number: int | None) -> str:
    return fmt.DASH if number is None else f"{number:,}"


def _heads(names: Sequence[str]) -> str:
    return "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in names)


def _cell(text: str, *, style: str = "") -> str:
    style = f"{_CELL};white-space:pre-wrap" + (f";{style}" if style else "")
    return f'<td style="{style}">{escape(text)}</td>'
