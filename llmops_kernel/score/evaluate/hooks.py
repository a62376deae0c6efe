"""Metrics of the user's own: `score_row` for each row, `compute_metrics` over all rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.driver.hooks import call, hook_numbers

ScoreRow = Callable[[str, str | None, Mapping[str, Any]], Mapping[str, float | None]]
"""score_row(prediction, reference, row) -> {name: number}"""
ComputeMetrics = Callable[
    [list[str], list[str | None], list[Mapping[str, Any]]], Mapping[str, float | None]
]
"""compute_metrics(predictions, references, rows) -> {name: number}"""
MAX_ROWS = 200_000
"""`compute_metrics` gets all rows in one list: with more of them the driver's memory is at risk."""


@dataclass(frozen=True)
class HookMetrics:
    """The metrics of `compute_metrics`, or why it was not called."""

    values: dict[str, float | None] = field(default_factory=dict)
    warning: str = ""


def user_metrics(
    score_row: ScoreRow,
    prediction: str,
    reference: str | None,
    row: Mapping[str, Any],
    *,
    reserved: Collection[str] = (),
) -> dict[str, float | None]:
    """Call `score_row` for one row. Raises HookError, also for names in `reserved`."""
    result = call(score_row, prediction, reference, row)
    return hook_numbers(result, hook="score_row", reserved=reserved)


def compute_metrics(
    function: ComputeMetrics,
    rows: Iterable[tuple[str, str | None, Mapping[str, Any]]],
    *,
    num_rows: int,
    reserved: Collection[str] = (),
) -> HookMetrics:
    """Call the hook with (prediction, reference, row) of all rows. Raises HookError.

    `rows` is not read for more than 200,000 of them: the hook is left out, with a warning.
    """
    if num_rows > MAX_ROWS:
        return HookMetrics(
            warning=f"compute_metrics was not called: it gets all rows in memory at once, and"
            f" {num_rows:,} rows are more than the {MAX_ROWS:,} that are allowed. Use the hook"
            " score_row, which gets one row at a time."
        )
    every = list(rows)
    if not every:
        return HookMetrics()
    predictions, references, inputs = (list(column) for column in zip(*every, strict=True))
    result = call(function, predictions, references, inputs)
    return HookMetrics(values=hook_numbers(result, hook="compute_metrics", reserved=reserved))
