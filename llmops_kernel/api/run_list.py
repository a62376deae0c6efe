"""Several runs at once: a list that prints as a table and can be saved."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.api.run_handle import Run
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.run_table import listing
from llmops_kernel.services.run_table.listing import summaries
from llmops_kernel.store.store import RunSummary
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.row import Column
from llmops_kernel.views.run_table import RunTable, run_table

if TYPE_CHECKING:
    import pandas as pd


class RunList(list[Run]):
    """Runs in order; prints as a table of their state at the time of the call.

    `to_pandas`, `to_csv` and `to_parquet` give the same columns as values in base units.
    """

    def __init__(self, backend: Backend, listing: Listing) -> None:
        super().__init__(Run(backend, row.run_id) for row in listing.rows)
        self._store, self._listing = backend.store, listing

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

    def table(self) -> RunTable:
        """The table that the list prints as."""
        if self._listing.chosen:
            return self._listing.table()
        return run_table(self.summaries, now_s=time.time(), names=self.names)

    def __repr__(self) -> str:
        return self.table().text() if self else "no runs yet"

    def _repr_html_(self) -> str:
        return self.table().html() if self else "no runs yet"
