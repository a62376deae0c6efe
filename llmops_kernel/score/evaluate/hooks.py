"""Metrics of the user's own: `score_row` for each row, `compute_metrics` over all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.driver.hooks import call
from llmops_kernel.errors import HookError

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
    """What `compute_metrics` gave, or why it was not called."""

    values: dict[str, float | None] = field(default_factory=dict)
    warning: str = ""


def user_metrics(
    score_row: ScoreRow,
    prediction: str,
    reference: str | None,
    row: Mapping[str, Any],
    *,
    taken: Collection[str] = (),
) -> dict[str, float | None]:
    """Call `score_row` for one row. Raises HookError, also for names in `taken`."""
    result = call(score_row, prediction, reference, row)
    return _numbers(result, hook="score_row", taken=taken)


def compute_metrics(
    function: ComputeMetrics,
    rows: Iterable[tuple[str, str | None, Mapping[str, Any]]],
    *,
    num_rows: int,
    taken: Collection[str] = (),
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
    return HookMetrics(values=_numbers(result, hook="compute_metrics", taken=taken))


def _numbers(result: Any, *, hook: str, taken: Collection[str]) -> dict[str, float | None]:
    if not isinstance(result, Mapping):
        raise HookError(
            f"The hook {hook} returned a {type(result).__name__}, not a dict.",
            remedy='return numbers by name, as {"accuracy": 1.0}',
        )
    return {_name(name, hook, taken): _number(name, value, hook) for name, value in result.items()}


def _name(name: Any, hook: str, taken: Collection[str]) -> str:
    if not isinstance(name, str) or not name:
        raise HookError(
            f"The hook {hook} names a metric {name!r}, which is not a text.",
            remedy='use names such as "accuracy"',
        )
    if name in taken:
        raise HookError(
            f"The hook {hook} returned {name!r}, which evaluation.metrics computes already.",
            remedy="give it another name, or take the metric out of evaluation.metrics",
        )
    return name


def _number(name: str, value: Any, hook: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise HookError(
            f"The hook {hook} returned {value!r} for {name!r}, which is not a finite number.",
            remedy="return None for a row that cannot have this metric",
        )
    return number
