"""What the model will see of a config's data, as an object that a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.kinds.reading import ConfigLike
from llmops_kernel.services.data import preview as service
from llmops_kernel.views.data_preview.facts import facts
from llmops_kernel.views.data_preview.text import html_of, row_head, row_html, row_lines, text_of


class RowPreview:
    """One row after the chat template, with what counts for the loss."""

    def __init__(self, shown: service.ShownRow) -> None:
        self.shown = shown
        """Its tokens, each with its text, its ids and whether the loss counts it."""

    def __repr__(self) -> str:
        return "\n".join(row_lines([self.shown])).rstrip()

    def _repr_html_(self) -> str:
        return row_html(self.shown)

    def __str__(self) -> str:
        return row_head(self.shown)


class DataPreview:
    """Figures of the training and evaluation rows, and some rows as the model sees them."""

    def __init__(self, job: service.PreviewJob, found: service.DataPreview) -> None:
        self._job = job
        self.report = found
        """Everything that was found, as a pydantic model."""

    @property
    def facts(self) -> dict[str, str]:
        """What was found, one sentence each."""
        return {fact.label: fact.text for fact in facts(self.report)}

    @property
    def warnings(self) -> dict[str, str]:
        """Those of the facts that a user should look at before a run."""
        return {fact.label: fact.text for fact in facts(self.report) if fact.level == "warning"}

    @property
    def rows(self) -> Sequence[RowPreview]:
        """The rows that are shown, of the side that was asked for."""
        return [RowPreview(shown) for shown in self.report.rows]

    def row(self, number: int) -> RowPreview:
        """Return one row whole, by its number from 1. Raises DataError."""
        return RowPreview(service.preview_row(self._job, number))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, as `llmops data --json` prints it."""
        return self.report.model_dump(mode="json")

    def __repr__(self) -> str:
        return text_of(self.report)

    def _repr_html_(self) -> str:
        return html_of(self.report)


def data_preview(
    config: ConfigLike,
    overrides: Overrides = (),
    *,
    rows: int = service.MOST_ROWS,
    show: int = 5,
    side: service.Side = "train",
    workspace: str | Path | None = None,
    timeout_s: float = service.TIMEOUT_S,
    **settings: Any,
) -> DataPreview:
    """Show the data of a training config as the model will see it; starts nothing.

    At most `rows` rows of each source are tokenised, from all over it; `side` is whose rows are
    shown. `settings` change fields of the config, such as `max_length=256`. Needs no cluster, only
    the tokenizer. Raises ConfigError, DataError, HookError, ModelError.
    """
    job = service.job_of(
        config, overrides=overrides, settings=settings, workspace=workspace, rows=rows, side=side
    ).model_copy(update={"num_shown": show})
    return DataPreview(job, service.preview(job, timeout_s=timeout_s))
