"""A run as JSON that a saved notebook keeps; Lab draws it without a kernel or widget state."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import Event
from llmops_kernel.planner.verdict import Verdict
from llmops_kernel.store.journal.view import RunView, finite
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.columns import columns_of, curve_of, pack
from llmops_kernel.views.snapshot import snapshot

MIME_TYPE = "application/vnd.llmops.run+json"
VERSION = 1
MAX_ROWS = 1_500
"""About 105 KB in the notebook's file, however long the run was."""


def saved_run(
    view: RunView,
    record: RunRecord,
    *,
    now_s: float,
    title: str = "",
    verdict: Verdict | None = None,
) -> dict[str, Any]:
    """Return the run's summary, and under `panel` what the panel draws: state and step rows."""
    columns = columns_of(view)
    rows = thinned(view)
    panel = {
        "state": {
            **snapshot(view, record, now_s=now_s, title=title, verdict=verdict).model_dump(
                mode="json"
            ),
            "every_row": len(rows) == len(view.rows),
        },
        "columns": base64.b64encode(pack(rows, columns)).decode(),
        "num_rows": len(rows),
        "num_steps": len(view.rows),
    }
    bundle = {"version": VERSION, "run_id": record.run_id, **view.summary(), "panel": panel}
    return without_nan(bundle)


def thinned(view: RunView, *, max_rows: int = MAX_ROWS) -> Sequence[Event]:
    """Return at most `max_rows` rows, the first and the last one always.

    Of each stretch of the kind's curve the lowest and the highest stay, and so do spikes.
    """
    rows = view.rows
    if len(rows) <= max_rows:
        return rows
    value = _curve_value(view)
    num_stretches = (max_rows - 2) // 2
    indices = {0, len(rows) - 1}
    for number in range(num_stretches):
        stretch = range(
            number * len(rows) // num_stretches, (number + 1) * len(rows) // num_stretches
        )
        finite_points = [(y, i) for i in stretch if (y := finite(value(rows[i]))) is not None]
        finite_points = finite_points or [(0.0, stretch[0])]
        indices |= {min(finite_points)[1], max(finite_points)[1]}
    return [rows[index] for index in sorted(indices)]


def _curve_value(view: RunView) -> Callable[[Event], float | None]:
    name, _ = curve_of(view)
    column = kind_named(view.kind).column(name)
    return (lambda _: None) if column is None else column.value


def without_nan(value: Any) -> Any:
    """Replace NaN, which JSON does not have: it would make the whole message unreadable."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
