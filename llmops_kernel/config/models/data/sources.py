"""The sources of training rows: one, or several with weights."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from llmops_kernel.config.models.section import Section

RowFormat = Literal["auto", "chat", "sharegpt", "prompt_completion", "alpaca", "text"]
MOST_WEIGHT = 1000


class TrainSource(Section):
    """One of several sources of training rows."""

    shorthand = "path"

    path: str
    """Where its rows are: a file, a folder, a pattern, a hub dataset id or a URL."""
    weight: float = Field(default=1.0, gt=0, le=MOST_WEIGHT)
    """How often each of its rows is seen in one epoch: 1 once, 2 twice, 0.5 half of the rows, and
    the other half in the next epoch."""
    format: RowFormat | None = None
    """Format of its rows; `null`: that of `data.format`."""
    columns: dict[str, str] | None = None
    """Columns of its rows under other names; `null`: those of `data.columns`."""
    train_split: str | None = None
    """Its split, if it is a hub dataset; `null`: that of `data.train_split`."""

    @property
    def words(self) -> str:
        """`a.jsonl`, or `a.jsonl (weight 2)`."""
        return self.path if self.weight == 1 else f"{self.path} (weight {self.weight:g})"


def _written_as(value: Any) -> str:
    return "sources" if isinstance(value, list | tuple) else "path"


# Told apart by what is written: else a mistake in one source is reported for the text as well.
TrainData = Annotated[
    Annotated[str, Tag("path")] | Annotated[tuple[TrainSource, ...], Tag("sources")],
    Discriminator(_written_as),
]
