"""A preview of a config's data, as sent to the browser."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from llmops_kernel.server.wire.common import Wire
from llmops_kernel.server.wire.configs import ConfigTarget


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


WIRE_MODELS: tuple[type[BaseModel], ...] = (DataBody, DataRowBody, ConfigData)
