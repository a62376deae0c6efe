"""The rows that a comparison shows: texts and metrics of both outputs, read when needed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from llmops_kernel.services.scoring.output import METRIC_PREFIX, ScoredOutput
from llmops_kernel.views.score_comparison import ComparedRow

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
    ours = _rows(outputs[0], before, columns)
    theirs = _rows(outputs[1], after, columns)
    return tuple(_row(a, b, key=key, metrics=metrics) for a, b in zip(ours, theirs, strict=True))


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
    known = [position for position in positions if position is not None]
    found = iter(output.rows(known, list(dict.fromkeys(columns))))
    return [{} if position is None else next(found) for position in positions]


def _row(a: dict[str, Any], b: dict[str, Any], *, key: str, metrics: Sequence[str]) -> ComparedRow:
    there = a or b
    return ComparedRow(
        key=there[key],
        prompt=_text(there["prompt"]) or "",
        reference=_text(there["reference"]),
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
    """A chat and other nested values as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
