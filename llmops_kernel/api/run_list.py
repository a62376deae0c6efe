"""Several runs at once: a list that prints as a table, and a comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.api.run_handle import Run
from llmops_kernel.api.sweeps import Rerun
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services import comparison
from llmops_kernel.services import run_list as listing
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.rerun import new_group
from llmops_kernel.services.run_list import summaries
from llmops_kernel.services.run_table import labels_of
from llmops_kernel.store.diff import RunDiff
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunSummary
from llmops_kernel.views.figures import RunTable, run_table
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.row import Column
from llmops_kernel.views.score_comparison import RowKind, RowsPage, ScoreDifference

if TYPE_CHECKING:
    import pandas as pd

    from llmops_kernel.services.scoring.compare import OutputComparison
    from llmops_kernel.views.comparison_matrix import Matrix


class RunList(list[Run]):
    """Runs in order; prints as a table of their state at the time of the call.

    `to_pandas`, `to_csv` and `to_parquet` give the same columns as values in base units.
    """

    def __init__(self, backend: Backend, listing: Listing) -> None:
        super().__init__(Run(backend, row.run_id) for row in listing.rows)
        self._backend, self._store, self._listing = backend, backend.store, listing

    @cached_property
    def summaries(self) -> tuple[RunSummary, ...]:
        """State, progress and figures of each run."""
        return tuple(summaries(self._store, self._listing))

    @property
    def names(self) -> dict[str, str]:
        """What each run is called on every screen, by its id: `lr 2e-3 · r 16`.

        Made from what differs between all runs of its config, listed here or not.
        """
        return self._listing.names

    @property
    def differing(self) -> list[str]:
        """The config fields whose values differ between these runs."""
        return [column.name for column in self._listing.differing]

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame, one row a run by its id; unknown values are missing."""
        return listing.frame(self._listing.values())

    def to_csv(self, path: str | Path) -> Path:
        """Write the columns as CSV; raises StoreError."""
        return listing.write(self._listing.values(), Path(path).with_suffix(".csv"))

    def to_parquet(self, path: str | Path) -> Path:
        """Write the columns as Parquet; raises StoreError, MissingDependencyError."""
        return listing.write(self._listing.values(), Path(path).with_suffix(".parquet"))

    def save(self, path: Path) -> Path:
        """Write a `.csv` or `.parquet` file; raises QueryError for any other name."""
        return listing.write(self._listing.values(), path)

    def records(self) -> list[dict[str, object]]:
        """Return a dictionary of its columns for each run."""
        values = self._listing.values()
        return [dict(zip(values, line, strict=True)) for line in zip(*values.values(), strict=True)]

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Every column that these runs have: facts, then figures and config fields by name."""
        every = self._listing.catalogue.columns.values()
        order = {"run": 0, "figure": 1, "config": 2}
        return tuple(sorted(every, key=lambda column: order[column.source]))

    def rerun(self, *, into: str = "", cluster: str = "", parallel: int | None = None) -> Rerun:
        """Submit each of these runs again: its recorded config with today's code.

        `llmops.runs("group == 'baseline'", limit=None).rerun()`. Returns when all have ended, with
        each new run beside its old one. The new ones are in the group `into`; the same one again
        goes on with what is missing. They run on their own clusters, or all on `cluster`. Raises
        ConfigError with what is wrong with each before any is started.
        """
        records = sorted((run.record for run in self), key=lambda record: record.created_s)
        again = Rerun(self._backend, records, into=into or new_group("runs"), cluster=cluster)
        return again.wait(parallel=parallel)

    def table(self) -> RunTable:
        """The table that the list prints as."""
        if self._listing.chosen:
            return self._listing.table()
        return run_table(self.summaries, now_s=time.time(), names=self.names)

    def __repr__(self) -> str:
        return self.table().text() if self else "no runs yet"

    def _repr_html_(self) -> str:
        return self.table().html() if self else "no runs yet"


# --- Two or more runs compared: overlaid curves, figures, differences, and rows of two scorings ---


class Comparison:
    """Overlaid curves and what differs from the baseline, the oldest run or `base`, to each other.

    Of three runs or more that is one matrix, with means over seeds (`matrix`).
    Of two scorings also their metrics side by side (`scores`) and their rows (`rows`).
    """

    def __init__(self, backend: Backend, runs: Sequence[Run], *, base: Run | None = None) -> None:
        self._store = backend.store
        by_id = {run.id: run for run in runs}
        compared = comparison.compare(
            backend.store, list(by_id), base=None if base is None else base.id
        )
        self.base = by_id[compared.base]
        self.runs = tuple(by_id[run_id] for run_id in compared.run_ids)
        views = {run.id: run.view for run in self.runs}
        self.diffs: tuple[RunDiff, ...] = tuple(
            comparison.with_predictions(backend.store, compared, views)
        )

    @cached_property
    def matrix(self) -> Matrix:
        """A line a run: what differs, figures, and their changes from the baseline.

        Runs that differ in nothing but their seeds have a line of means before theirs.
        """
        from llmops_kernel.views.comparison_matrix import ComparedRun, matrix_of

        names = self.names
        runs = [
            ComparedRun(name=names[run.id], view=run.view, record=run.record) for run in self.runs
        ]
        return matrix_of(runs, base=self.runs.index(self.base))

    @cached_property
    def scores(self) -> ScoreDifference:
        """Metrics of two scorings with 95 % intervals, counts of rows, stability of the outputs.

        Raises ComparisonError for other runs, and while one of them is not finished.
        """
        return self._outputs.difference

    def rows(
        self,
        kind: RowKind = "flipped",
        *,
        metric: str | None = None,
        offset: int = 0,
        limit: int = 1000,
    ) -> pd.DataFrame:
        """Return rows of two scorings, at most `limit`, with both outputs and their metrics.

        `kind`: `better`, `worse` and `same` by `metric`, the largest difference first; `flipped`
        (another label or exact match), `changed` (another output), `error`, `only_before`,
        `only_after`, `all`. Raises ComparisonError.
        """
        return self._outputs.frame(kind, metric=metric, offset=offset, limit=limit)

    def page(
        self, kind: str, *, metric: str | None = None, offset: int = 0, limit: int = 20
    ) -> RowsPage:
        """Return rows as `rows` does, with how many there are. Raises ComparisonError."""
        return self._outputs.rows(cast("RowKind", kind), metric=metric, offset=offset, limit=limit)

    @cached_property
    def _outputs(self) -> OutputComparison:
        return comparison.compare_outputs(self._store, [run.id for run in self.runs])

    @property
    def has_rows(self) -> bool:
        """Whether these are two scorings, whose rows can be compared."""
        return comparison.has_rows(self._store, [run.id for run in self.runs])

    @cached_property
    def names(self) -> dict[str, str]:
        """A name of each run by its id, made from what differs: `lr 2e-3 · r 16`."""
        return labels_of(self._store, [run.id for run in self.runs])

    def _named(self) -> list[tuple[str, RunView]]:
        """What differs before each id: an id alone says nothing in a legend."""
        names = self.names
        return [(f"{names[run.id]} ({run.id})", run.view) for run in self.runs]

    def to_png(self) -> bytes:
        """Loss, speed and start-up phases as a picture."""
        from llmops_kernel.views.compare import render_png

        return render_png(self._named())

    def text(self) -> str:
        """What differs, evaluation, loss and samples, then speed and start-up, for terminals."""
        from llmops_kernel.views import compare

        if len(self.runs) > 2:
            return compare.matrix_words(self._named(), self.diffs, self.matrix)
        scores = self._scores_text() if self.has_rows else ""
        return compare.text(self._named(), self.diffs, scores=scores)

    def _scores_text(self) -> str:
        from llmops_kernel.views.score_comparison import text_of

        try:
            return text_of(self.scores)
        except LLMOpsError as error:
            return f"Rows are not compared: {error}"

    def __repr__(self) -> str:
        return self.text()

    def _ipython_display_(self) -> None:
        from llmops_kernel.views.compare import bundles
        from llmops_kernel.widgets.show import display_bundle

        scores = (self._scores_html(), self._scores_text()) if self.has_rows else ("", "")
        matrix = self.matrix if len(self.runs) > 2 else None
        for bundle in bundles(self._named(), self.diffs, scores=scores, matrix=matrix):
            display_bundle(bundle)

    def _scores_html(self) -> str:
        from llmops_kernel.views.score_comparison import html_of

        try:
            return html_of(self.scores)
        except LLMOpsError:
            return f"<pre>{escape(self._scores_text())}</pre>"
