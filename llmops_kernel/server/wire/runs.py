"""Runs as the browser sees them."""

from __future__ import annotations

from pydantic import BaseModel

from llmops_kernel.metrics.events import RunState
from llmops_kernel.server.wire.common import Wire


class RunRow(Wire):
    """One line of the side bar; topic `runs` sends `{runs: RunRow[], removed: id[], whole: bool}`."""

    run_id: str
    name: str
    title: str
    """What the user called it; empty when nothing."""
    starred: bool
    cluster: str
    created_s: float
    state: RunState
    attempt: int
    message: str
    """Why it ended; empty while it runs."""
    remedy: str
    last_step: int | None
    total_steps: int | None
    progress: float | None
    """0..1."""
    eta_s: float | None
    loss: float | None
    mfu: float | None
    """0..1."""
    tokens_per_second: float | None
    submit_to_first_step_s: float | None
    best_metrics: dict[str, float | None]
    sparkline: list[tuple[float, float]]
    """(step, loss), at most 40 points."""
    parent: str | None
    submission_id: str | None
    """Of the newest attempt, for the link to Ray's job page."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (RunRow,)
