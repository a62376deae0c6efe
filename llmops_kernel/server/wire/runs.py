"""Runs, as sent to the browser."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from llmops_kernel.kinds.kind import Action
from llmops_kernel.metrics.events import RunState
from llmops_kernel.server.wire.common import Body, Wire
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.record import Priority
from llmops_kernel.store.run_notes import MAX_NOTE, MAX_TITLE
from llmops_kernel.views.panel import ComparedSample
from llmops_kernel.views.profile import PROFILED_STEPS


class RunProgress(Wire):
    """Progress of a run."""

    done: int
    total: int | None
    unit: str
    """`steps`, `rows` ..."""


class RunRow(Wire):
    """One run in a list."""

    run_id: str
    kind: str
    """`train`, `script` ..."""
    name: str
    title: str
    """The title that a user gave it; empty without one."""
    differs: str
    """What differs from all other runs of its config: `lr 2e-3 · r 16`; empty for nothing.

    Where several have the same, the time of submission follows: no two of a config share it."""
    starred: bool
    cluster: str
    created_s: float
    hidden: bool
    """Run of a benchmark or a self-test; lists show it only when asked."""
    state: RunState
    attempt: int
    reason: str
    """Says what it waits for or why it restarts; empty where the state says all."""
    message: str
    """Why it ended; empty until it has ended."""
    remedy: str
    progress: RunProgress | None
    fraction: float | None
    """Fraction done, 0..1; null while the total is unknown."""
    eta_s: float | None
    eta_is_least: bool
    """Whether it takes longer still: what is to come was not measured yet."""
    figures: list[FigureValue]
    """The figures of its kind, the most important first; an unknown one has a dash as text."""
    curve: list[float | None]
    """Values of the kind's main curve from the first to the last row, evenly spread."""
    curve_label: str
    """Empty for a kind without a curve."""
    actions: list[Action]
    """Actions that are possible now."""
    parent: str | None
    submission_id: str | None
    """Submission id of the newest attempt, for the link to Ray's job page."""


class RunAttempt(Wire):
    """One attempt of a run."""

    number: int
    cluster: str
    submission_id: str
    submitted_s: float
    ended_s: float | None
    state: RunState | None
    """Final state; null while it is not known."""
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
    """Path in Jupyter's file browser; null outside its root folder."""


class RunDetail(Wire):
    """One run in full, without its curves."""

    row: RunRow
    note: str
    user: str
    host: str
    config_path: str | None
    config_yaml: str
    """The resolved config: all fields, including defaults."""
    overrides: dict[str, Any]
    versions: dict[str, str]
    git: str
    """`revision (branch, with changes)`; empty outside of git."""
    files: list[str]
    """Files of the workspace that were submitted."""
    attempts: list[RunAttempt]
    outputs: list[RunOutput]
    checkpoints: list[RunOutput]
    folder: str
    contents_path: str | None


class RunPreview(Wire):
    """What deleting a run would remove."""

    run_id: str
    state: RunState
    folder: str
    size_bytes: int
    num_files: int
    checkpoints: list[str]
    outputs: list[str]
    kept: list[str]
    """Results outside the run folder, which are kept."""
    children: list[str]
    """Runs that were re-submitted from it, which are kept."""


class FileText(Wire):
    """One file of a run's code."""

    path: str
    text: str


class NotesBody(Body):
    """What to change; fields that are left out keep their values."""

    title: str | None = Field(default=None, max_length=MAX_TITLE)
    starred: bool | None = None
    note: str | None = Field(default=None, max_length=MAX_NOTE)


class SubmitBody(Body):
    """A training config by its contents path or as text, and the cluster to run it on."""

    cluster: str = "local"
    path: str | None = None
    text: str | None = None
    """Used instead of the file; `path` then only determines the folder."""
    overrides: list[str] = []
    """`section.field=value`."""
    workspace: str | None = None
    """Contents path of the folder that is submitted; default the config's folder."""
    strict: bool = False
    """Refuse a training whose plan does not fit in memory."""


class ResubmitBody(Body):
    """Changes to a run's config."""

    cluster: str | None = None
    text: str | None = None
    """The whole config, edited."""
    overrides: list[str] = []


class ProfileBody(Body):
    """Profile the next steps of a run."""

    steps: int = PROFILED_STEPS


class QueueBody(Body):
    """Move a run in the queue of its cluster."""

    priority: Priority | None = None
    before: str | None = None
    """The run that it goes before; empty: before all."""


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
    """One line that matches."""

    offset: int
    end: int
    """Offset of the next line."""
    text: str


class LogMatches(Wire):
    """What a search found."""

    matches: list[LogMatch]
    next: int | None
    """Offset to continue from; null when the whole log was searched."""


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
    is_code: bool
    """False for data, logs, outputs and the outputs of a notebook."""
    counts: str
    """`+3 -1`: lines of the difference; empty where the text is not compared."""


class RunDifference(Wire):
    """What differs from one run to another."""

    before: str
    after: str
    config: list[Change]
    code: list[CodeChange]
    environment: list[Change]
    prediction: str
    """What the first run's verdict has predicted of this change, beside what was measured."""


class ComparedFigure(Wire):
    """One figure of all compared runs."""

    label: str
    group: Literal["result", "speed", "start"]
    """What the model became; how fast, with how much memory and money; the phases of start-up."""
    texts: list[str]
    changes: list[str]
    """From the baseline's to this one's: `× 1.36` or `+0.0123`; a dash where it is not known."""


class MatrixField(Wire):
    """Something that differs between the runs: a path of their configs, or `code`."""

    path: str
    label: str
    is_minor: bool
    """Whether it says little, as the place of the output does."""


class MatrixCell(Wire):
    """One figure of a run, or its mean over several."""

    number: float | None
    text: str
    change: str
    """From the baseline's; empty for the baseline, a dash where it is not known."""
    is_best: bool


class MatrixLine(Wire):
    """A run; or several that differ in nothing but their seeds, whose figures are means."""

    runs: list[int]
    """Places in `Comparison.runs`."""
    label: str
    values: list[str]
    cells: list[MatrixCell]
    is_base: bool
    note: str
    """Of a run that has not succeeded: `running, step 40 of 225`."""


class ComparisonMatrix(Wire):
    """A line a run; before those of one setting their mean."""

    fields: list[MatrixField]
    figures: list[str]
    lines: list[MatrixLine]


class Comparison(Wire):
    """Several runs side by side; their curves come as rows."""

    runs: list[RunRow]
    base: int
    """The place of the run that the others are compared with."""
    matrix: ComparisonMatrix
    figures: list[ComparedFigure]
    differences: list[RunDifference]
    samples: list[ComparedSample]
    has_rows: bool
    """Whether `compare/scores` and `compare/rows` compare the runs' outputs row by row."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    RunRow,
    RunDetail,
    RunPreview,
    FileText,
    NotesBody,
    SubmitBody,
    ResubmitBody,
    ProfileBody,
    QueueBody,
    LogInfo,
    LogWindow,
    LogMatches,
    Comparison,
)


# --- Two scorings side by side, as sent to the browser ---


RowsKind = Literal[
    "all", "better", "worse", "same", "flipped", "changed", "error", "only_before", "only_after"
]


class ScoredMetric(Wire):
    """One metric of both scorings; unknown is null."""

    name: str
    before: float | None
    after: float | None
    delta: float | None
    low: float | None
    """Ends of the delta's 95 % confidence interval; null for a metric that rows do not have."""
    high: float | None
    rows: int | None
    """Rows that have the metric in both; null for a metric of the whole table."""
    better: Literal["lower", "higher"] | None
    num_better: int | None
    num_worse: int | None
    num_same: int | None
    texts: list[str]
    """Name, both values, delta, interval, rows better and worse, as tables show them."""


class RowsOfKind(Wire):
    """How many rows there are of a kind."""

    kind: RowsKind
    label: str
    """`flipped`, `only in the first` ..."""
    rows: int


class ScoreComparison(Wire):
    """What differs between the outputs of two scorings, the older run first."""

    before: str
    """Run id."""
    after: str
    metrics: list[ScoredMetric]
    row_metrics: list[str]
    """Metrics that rows have in both: what rows can be ordered by."""
    metric: str | None
    """The one that better and worse are counted by."""
    counts: list[RowsOfKind]
    errors_before: int
    errors_after: int
    output_rows: int
    """Rows with an output in both."""
    identical: float | None
    """Share of them with the same output, 0..1."""
    similarity: float | None
    """Mean similarity of their outputs, 0..1."""
    sampled: int
    """Outputs that differ, of which the similarity was computed."""


class ScoredRow(Wire):
    """One row of both scorings; texts over 20,000 characters are cut."""

    key: str
    prompt: str
    reference: str | None
    before: str | None
    """The output; null for a row without one."""
    after: str | None
    before_error: str
    after_error: str
    before_metrics: dict[str, float | None]
    after_metrics: dict[str, float | None]
    is_cut: bool
    """Whether a text is longer than what is sent."""


class ScoredRows(Wire):
    """One page of the rows of a kind."""

    kind: RowsKind
    metric: str | None
    """The metric that says what is better or worse."""
    total: int
    offset: int
    rows: list[ScoredRow]


SCORING_MODELS: tuple[type[BaseModel], ...] = (ScoreComparison, ScoredRows)
