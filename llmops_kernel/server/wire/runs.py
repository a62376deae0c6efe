"""Runs as the browser sees them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from llmops_kernel.metrics.events import RunState
from llmops_kernel.runs.notes import MAX_NOTE, MAX_TITLE
from llmops_kernel.server.wire.common import Body, Wire


class RunRow(Wire):
    """One line of the side bar; topic `runs` sends `{runs: RunRow[], removed, whole}`."""

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


class RunAttempt(Wire):
    """One try of a run."""

    number: int
    cluster: str
    submission_id: str
    submitted_s: float
    ended_s: float | None
    state: RunState | None
    """How it ended; null when nobody saw its end."""
    message: str
    resumed_from: str | None
    log_bytes: int | None
    """Null when this machine does not have its log."""


class RunOutput(Wire):
    """A result, or a checkpoint."""

    what: str
    path: str
    size_bytes: int | None
    """Null when it is not on this machine."""
    contents_path: str | None
    """For Jupyter's file browser, when it lies below its root."""


class RunDetail(Wire):
    """One run in full, but for its curves."""

    row: RunRow
    note: str
    user: str
    host: str
    config_path: str | None
    config_yaml: str
    """Resolved: every field, defaults too."""
    overrides: dict[str, Any]
    versions: dict[str, str]
    git: str
    """`revision (branch, with changes)`; empty outside of git."""
    files: list[str]
    """Of the workspace that travelled along."""
    attempts: list[RunAttempt]
    outputs: list[RunOutput]
    checkpoints: list[RunOutput]
    folder: str
    contents_path: str | None


class RunPreview(Wire):
    """What a deletion would remove."""

    run_id: str
    state: RunState
    folder: str
    size_bytes: int
    num_files: int
    checkpoints: list[str]
    outputs: list[str]
    kept: list[str]
    """Results elsewhere, which stay."""
    children: list[str]
    """Runs that were re-submitted from it; they stay."""


class FileText(Wire):
    """One file of a run's code."""

    path: str
    text: str


class NotesBody(Body):
    """What to change; what is left out stays."""

    title: str | None = Field(default=None, max_length=MAX_TITLE)
    starred: bool | None = None
    note: str | None = Field(default=None, max_length=MAX_NOTE)


class SubmitBody(Body):
    """A training config by its contents path or as text, and where it shall run."""

    cluster: str = "local"
    path: str | None = None
    text: str | None = None
    """Wins over the file; `path` then only tells the folder."""
    overrides: list[str] = []
    """`section.field=value`."""
    workspace: str | None = None
    """Contents path of the folder that travels along; default the config's own."""


class ResubmitBody(Body):
    """Changes to a run's config."""

    cluster: str | None = None
    text: str | None = None
    """The whole config, edited."""
    overrides: list[str] = []


class LogInfo(Wire):
    """Which logs a run has."""

    attempt: int
    attempts: list[int]
    size: int


class LogWindow(Wire):
    """Whole lines; offsets are bytes."""

    offset: int
    end: int
    size: int
    text: str
    partial: str
    """The last line while it has no line end."""


class LogMatch(Wire):
    """One line with a hit."""

    offset: int
    end: int
    """Where the line after it begins."""
    text: str


class LogMatches(Wire):
    """What a search found."""

    matches: list[LogMatch]
    next: int | None
    """Offset to go on from; null when all was looked through."""


class Change(Wire):
    """A value that differs."""

    path: str
    before: str
    after: str


class CodeChange(Wire):
    """A file that differs."""

    path: str
    kind: Literal["added", "removed", "changed"]
    unified_diff: str


class RunDifference(Wire):
    """What differs from one run to another."""

    before: str
    after: str
    config: list[Change]
    code: list[CodeChange]
    environment: list[Change]


class ComparedFigure(Wire):
    """One figure of all compared runs."""

    label: str
    texts: list[str]
    ratios: list[float | None]
    """To the first run's; null where one of the two is not known."""


class Comparison(Wire):
    """Several runs side by side; their curves come as rows."""

    runs: list[RunRow]
    figures: list[ComparedFigure]
    differences: list[RunDifference]


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    RunRow,
    RunDetail,
    RunPreview,
    FileText,
    NotesBody,
    SubmitBody,
    ResubmitBody,
    LogInfo,
    LogWindow,
    LogMatches,
    Comparison,
)
