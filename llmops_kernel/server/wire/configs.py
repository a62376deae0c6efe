"""Requests and responses of the config routes; lines count from 1, columns from 0 in characters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from llmops_kernel.server.wire.common import Body, Wire


class ConfigKind(Wire):
    """A kind of config file that editors support."""

    name: str
    title: str
    globs: list[str]
    """Patterns of the end of a path."""
    new_file: str
    """Usual name of a new file."""
    is_run: bool
    """Whether such a file is submitted as a run."""


class ConfigText(Wire):
    """A complete YAML text."""

    text: str


class ConfigTarget(Body):
    """Which kind of config a text is: by name, or by its Jupyter contents path."""

    kind: str | None = None
    path: str | None = None
    text: str


class CheckBody(ConfigTarget):
    """A text to check."""

    with_files: bool = False
    """Also check the files that it names."""
    closely: bool = False
    """Also read, format and tokenise some rows, look up a hub id and try the output's folder, which
    takes seconds: for training configs."""
    overrides: tuple[str, ...] = ()
    """Overrides, `section.field=value`."""


class CursorBody(ConfigTarget):
    """A cursor position in a text."""

    line: int
    column: int


class RenderBody(Body):
    """Values of a form."""

    kind: str
    data: dict[str, Any]


class ConfigDiagnostic(Wire):
    """One problem and its position."""

    line: int
    column: int
    end_line: int
    end_column: int
    severity: Literal["error", "warning"]
    path: str
    message: str
    value: str | None
    suggestion: str
    file: str | None
    """The override or the other file that the mistake is in; null for the text itself."""


class ConfigCheck(Wire):
    """Whether a text is valid, and what it would do."""

    kind: str
    valid: bool
    effect: list[str]
    """What the config does, one sentence per item; empty while there is a problem."""
    name: str | None
    """The config's own name."""
    values: dict[str, Any] | None
    """The values as written, sections expanded; null if the text is not YAML."""
    diagnostics: list[ConfigDiagnostic]
    """What makes it invalid."""
    warnings: list[ConfigDiagnostic]
    """What need not stop a run."""
    checked: list[str]
    """What was tried with `closely`, and what could not be: one sentence per item."""


class ConfigCompletion(Wire):
    """One completion."""

    label: str
    insert: str
    kind: Literal["field", "value", "file"]
    detail: str
    documentation: str
    replace_from: int
    """Columns of the cursor's line."""
    replace_to: int


class ConfigHover(Wire):
    """What the key or value under the mouse means."""

    line: int
    column: int
    end_column: int
    title: str
    text: str
    """Markdown."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    ConfigKind,
    ConfigText,
    CheckBody,
    CursorBody,
    RenderBody,
    ConfigDiagnostic,
    ConfigCheck,
    ConfigCompletion,
    ConfigHover,
)


# --- A preview of a config's data, as sent to the browser ---


class DataBody(ConfigTarget):
    """A training config whose data is looked at. Nothing is saved or started."""

    rows: int = Field(default=2000, ge=1, le=20_000)
    """Rows of each source that are tokenised."""
    side: Literal["train", "eval"] = "train"
    """Whose rows are shown."""


class DataRowBody(ConfigTarget):
    """One row of a config's data, by its number from 1."""

    side: Literal["train", "eval"] = "train"
    row: int = Field(ge=1)


class DataFact(Wire):
    """One finding."""

    label: str
    text: str
    level: Literal["plain", "warning"]
    """`warning`: something to look at before a run."""


class DataBin(Wire):
    """A line of the histogram of lengths."""

    label: str
    rows: int | None
    """null: the line is `max_length` itself."""
    is_beyond: bool
    """Longer than `max_length`."""


class DataToken(Wire):
    """The text of one token, or of several that make one character."""

    text: str
    """With control characters and line ends made visible."""
    ids: list[int]
    kind: Literal["loss", "context", "cut"]
    special: bool


class DataRow(Wire):
    """One row as the model sees it."""

    number: int | None
    """null where only a part of a large file was read."""
    head: str
    """What it is, in one line."""
    hidden: int
    """Tokens at its end that are not among `tokens`."""
    tokens: list[DataToken]


class ConfigData(Wire):
    """What the model will see of a config's data."""

    side: Literal["train", "eval"]
    has_eval: bool
    facts: list[DataFact]
    lengths: str
    """Of which rows the histogram is."""
    bins: list[DataBin]
    rows: list[DataRow]
    took_s: float


class PlanBody(ConfigTarget):
    """A training config whose memory, speed and cost are planned. Nothing is saved or started."""

    cluster: str = "local"
    """Name of a cluster template, whose machines are meant."""


class PlanPart(Wire):
    """What a part of the memory of one device is for."""

    label: str
    size: str
    share: float
    """Of the whole, 0..1."""


class ConfigPlan(Wire):
    """What is expected of a training."""

    device: str
    fits: bool | None
    """null: not known."""
    facts: list[DataFact]
    parts: list[PlanPart]


DATA_MODELS: tuple[type[BaseModel], ...] = (
    DataBody,
    DataRowBody,
    ConfigData,
    PlanBody,
    ConfigPlan,
)
