"""A run as JSON that a saved notebook keeps; Lab draws it without a kernel or widget state."""

from __future__ import annotations

import base64
import math
from typing import Any

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.runs.record import RunRecord
from llmops_kernel.runs.view import RunView
from llmops_kernel.widgets.columns import pack
from llmops_kernel.widgets.snapshot import snapshot

MIME_TYPE = "application/vnd.llmops.run+json"
VERSION = 1
MAX_ROWS = 2_000
"""About 75 KB in the notebook's file, however long the run was."""


def saved_run(view: RunView, record: RunRecord, *, now_s: float) -> dict[str, Any]:
    """The run's summary, and under `panel` what the panel draws: its state and its step rows."""
    rows = thinned(view.steps)
    panel = {
        "state": snapshot(view, record, now_s=now_s),
        "columns": base64.b64encode(pack(rows)).decode(),
        "num_rows": len(rows),
        "num_steps": len(view.steps),
    }
    bundle = {"version": VERSION, "run_id": record.run_id, **view.summary(), "panel": panel}
    return without_nan(bundle)


def thinned(steps: list[StepEvent], *, max_rows: int = MAX_ROWS) -> list[StepEvent]:
    """At most `max_rows` of them: of each stretch the lowest and the highest loss, so that
    spikes stay; the first and the last step always.
    """
    if len(steps) <= max_rows:
        return steps
    num_stretches = (max_rows - 2) // 2
    kept = {0, len(steps) - 1}
    for number in range(num_stretches):
        stretch = range(
            number * len(steps) // num_stretches, (number + 1) * len(steps) // num_stretches
        )
        known = [index for index in stretch if _has_loss(steps[index])] or [stretch[0]]
        kept |= {
            min(known, key=lambda i: steps[i].loss or 0.0),
            max(known, key=lambda i: steps[i].loss or 0.0),
        }
    return [steps[index] for index in sorted(kept)]


def _has_loss(step: StepEvent) -> bool:
    return step.loss is not None and math.isfinite(step.loss)


def without_nan(value: Any) -> Any:
    """JSON has no NaN: a diverged loss would make the whole message unreadable."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
