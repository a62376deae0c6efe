"""A line of a list of runs, as data; `views/summary.py` makes it from record and view."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from llmops_kernel.metrics.events import RunState
from llmops_kernel.store.journal.view import Progress

Unit = Literal[
    "loss", "fraction", "per_second", "seconds", "bytes", "count", "exponent", "money", "number"
]
"""Unit of a number; it decides how the number is written."""
Better = Literal["lower", "higher"] | None


class FigureValue(BaseModel):
    """One figure of one run: the number, and the same as text for people."""

    model_config = ConfigDict(frozen=True)

    key: str
    label: str
    value: float | None = None
    """In base units; None for unknown or NaN, which `text` distinguishes."""
    text: str
    unit: Unit
    better: Better = None
    hint: str = ""
    listed: bool = False
    """Whether lists of runs show it."""


class RunSummary(BaseModel):
    """A line of `llmops runs`."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    kind: str = "train"
    name: str
    cluster: str
    created_s: float
    hidden: bool = False
    """Left out of lists unless asked for: runs of benchmarks and self-tests."""
    state: RunState
    attempt: int
    began_s: float | None = None
    """When the first phase of the newest attempt began; None before, and of older versions."""
    ended_s: float | None = None
    """When that attempt ended; None while it runs."""
    progress: Progress | None = None
    figures: tuple[FigureValue, ...] = ()
    """In the order of the kind's list."""
    curve: tuple[float | None, ...] = ()
    """Values of the kind's curve from the first to the last row, evenly spread."""
    parent: str | None = None
    reason: str = ""
    """What it waits for or why it starts again; empty where the state says all, and at its end."""
    message: str = ""
    """Why it ended; empty while it runs."""
    remedy: str = ""

    def took_s(self, *, now_s: float) -> float | None:
        """Return how long the newest attempt took, or has been running by now."""
        if self.began_s is None or self.state == "PENDING":
            return None
        return max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.began_s)

    def figure(self, key: str) -> FigureValue | None:
        return next((figure for figure in self.figures if figure.key == key), None)
