"""The table of all runs, as it is asked for and sent: a window of lines at a time."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from llmops_kernel.metrics.events import RunState
from llmops_kernel.server.wire.common import Body, Wire
from llmops_kernel.store.journal.summary import Better
from llmops_kernel.store.run_notes import Colour, Tag

MAX_LINES = 500
MAX_BULK = 2_000
_Text = Field(default="", max_length=4_000)


class RunTableQuery(Body):
    """Which runs, in what order, with which columns."""

    where: str = _Text
    """Such as `method.r > 8 and eval_loss < 0.4`."""
    sort: str = _Text
    """Column names with commas between them; a minus begins with the largest."""
    columns: list[str] = Field(default=[], max_length=200)
    """Empty for the usual ones: state, progress, figures and what differs."""
    group: str = _Text
    """Column names; empty for no groups."""
    closed: list[str] = Field(default=[], max_length=2_000)
    """Keys of groups whose runs are not shown."""
    hidden: bool = False
    """Also runs of benchmarks and self-tests."""
    colour_by: str = _Text
    """A column; empty for the colours that users gave."""
    first: int = Field(default=0, ge=0)
    count: int = Field(default=100, ge=0, le=MAX_LINES)


class RunTableColumn(Wire):
    """One column."""

    name: str
    """What a user writes in a filter."""
    label: str
    source: Literal["run", "figure", "config"]
    type: Literal["text", "number", "time", "yes/no", "list"]
    better: Better
    differs: bool
    """Whether its values differ between the runs that match."""


class RunTableRun(Wire):
    """One run of the window."""

    run_id: str
    label: str
    """Its title, or what differs from all other runs of its config: the same on every screen."""
    config: str
    """Its config's name where the store has several and the label does not begin with it."""
    state: RunState
    has_ended: bool
    starred: bool
    tags: list[str]
    colour: str
    """The colour that a user gave it; empty without one."""
    tone: float | None
    """Where its value of the column that colours the table is among all, 0..1."""
    cells: list[str]
    """A text for each column."""


class RunTableGroup(Wire):
    """The head of a group."""

    key: str
    text: str
    count: int
    is_closed: bool


class RunTableLine(Wire):
    """One line: the head of a group, or a run."""

    group: RunTableGroup | None
    run: RunTableRun | None


class RunTableAnswer(Wire):
    """A window of the table."""

    version: int
    """Changes when any row has changed."""
    total: int
    matched: int
    num_lines: int
    """Runs and heads of groups, without the runs of closed groups."""
    first: int
    lines: list[RunTableLine]
    columns: list[RunTableColumn]
    reading: bool
    """True while runs are still being read: there may be more."""


class RunTableColumns(Wire):
    """Every column that can be shown, filtered and sorted by."""

    columns: list[RunTableColumn]


class RunTableAxis(Wire):
    """One axis of the parallel coordinates: a number's range, or the values of a text."""

    name: str
    label: str
    low: float | None
    high: float | None
    is_log: bool
    ends: list[str]
    """The lowest and the highest as the table writes them."""
    values: list[str]
    """Of a text, from the top; empty for numbers."""


class RunTableRay(Wire):
    """A run as a line over the axes."""

    run_id: str
    label: str
    tone: float | None
    at: list[float | None]
    """Where it meets each axis, 0 (bottom) to 1; null where its value is unknown."""


class RunTableRays(Wire):
    """Parallel coordinates over the table's columns."""

    axes: list[RunTableAxis]
    rays: list[RunTableRay]
    left_out: int
    """Runs that match but are not drawn because there are too many."""


class RunIdsBody(Body):
    """The runs of an action."""

    run_ids: list[str] = Field(min_length=1, max_length=MAX_BULK)


class RunTagsBody(Body):
    """Changes of the tags and the colour of runs."""

    run_ids: list[str] = Field(min_length=1, max_length=MAX_BULK)
    add: list[Tag] = Field(default=[], max_length=20)
    remove: list[Tag] = Field(default=[], max_length=20)
    colour: Colour | None = None
    """Null leaves the colour as it is."""


class RunIds(Wire):
    """The runs that match."""

    run_ids: list[str]


class RunLosses(Wire):
    """What deleting runs would remove."""

    num_runs: int
    size: str
    """For people: `1.5 GiB`."""
    num_checkpoints: int
    num_with_output: int
    starred: list[str]
    not_ended: list[str]
    """Cannot be deleted before they are stopped."""
    missing: list[str]


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    RunTableQuery,
    RunTableAnswer,
    RunTableColumns,
    RunTableRays,
    RunIdsBody,
    RunTagsBody,
    RunIds,
    RunLosses,
)
