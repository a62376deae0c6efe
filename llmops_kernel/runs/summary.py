"""One line of a list of runs, made from a run's record and view."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from llmops_kernel.metrics.events import RunState
from llmops_kernel.runs.record import Attempt, RunRecord
from llmops_kernel.runs.view import RunView

SPARKLINE_POINTS = 40


class RunSummary(BaseModel):
    """One line of `llmops runs`."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    name: str
    cluster: str
    created_s: float
    state: RunState
    attempt: int
    last_step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    mfu: float | None = None
    tokens_per_second: float | None = None
    best_metrics: dict[str, float] = {}
    """Best value of each evaluation metric."""
    parent: str | None = None
    submit_to_first_step_s: float | None = None
    message: str = ""
    """Why it ended; empty while it runs."""
    remedy: str = ""
    sparkline: tuple[tuple[int, float], ...]
    """(step, loss) of up to 40 steps, evenly spread from the first to the last."""


def summarise(record: RunRecord, view: RunView, attempts: Sequence[Attempt]) -> RunSummary:
    # An attempt that has journalled nothing yet is on its way.
    is_told = not attempts or attempts[-1].number <= view.attempt
    return RunSummary(
        run_id=record.run_id,
        name=record.name,
        cluster=record.cluster,
        created_s=record.created_s,
        state=view.state if is_told else "PENDING",
        attempt=max([view.attempt, *(attempt.number for attempt in attempts)]),
        last_step=view.last_step,
        total_steps=view.total_steps,
        loss=_finite(view.loss),
        mfu=view.mfu,
        tokens_per_second=view.tokens_per_second,
        best_metrics=view.best_metrics,
        parent=record.parent,
        submit_to_first_step_s=view.submit_to_first_step_s,
        message=view.message if is_told else "",
        remedy=view.remedy if is_told else "",
        sparkline=sparkline(view),
    )


def sparkline(view: RunView, *, points: int = SPARKLINE_POINTS) -> tuple[tuple[int, float], ...]:
    """Reads no more than `points` steps, however many there are."""
    steps = view.steps
    last = len(steps) - 1
    count = min(points, len(steps))
    picked = [steps[i * last // (count - 1) if count > 1 else last] for i in range(count)]
    known = ((event.step, _finite(event.loss)) for event in picked)
    return tuple((step, loss) for step, loss in known if loss is not None)


def _finite(value: float | None) -> float | None:
    """JSON has no NaN, which a diverged loss is."""
    return value if value is not None and math.isfinite(value) else None
