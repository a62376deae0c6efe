"""The table of all runs as the server keeps it: runs that are followed anyway are not read."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from llmops_kernel.errors import StoreError
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.server.wire.runs import RunRow
from llmops_kernel.services.run_table import RunTable
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.view import Progress
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.differences import Naming
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.query import Query, Selection
from llmops_kernel.views.run_query.row import Row

K = TypeVar("K")
V = TypeVar("V")
_READ_S, _REST_S = 0.5, 0.1
"""How long journals are read at a time: requests come in between."""
_KEPT = 8
"""Questions whose answer is kept until a run changes: scrolling asks the same one often."""


class LiveTable:
    """Answers questions about all runs. A restarted server reads the same from the store."""

    def __init__(self, store: RunStore, rows: RunRows) -> None:
        self.table = RunTable(store)
        self._rows = rows
        self._seen = 0
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()
        self._answers: dict[Query, tuple[int, Selection, Listing]] = {}
        self._names: dict[tuple[int, frozenset[str]], Naming] = {}

    def refresh(self) -> None:
        """Bring the table up to date, or leave that to the thread which is doing it."""
        self.table.refresh_unless_busy(self._news, self._rows.known_ids())
        if self.table.is_reading:
            self._read_on()

    def warm(self) -> None:
        """Load what the index has kept, in the background: the table then opens at once."""
        if self.table.version == 0:
            threading.Thread(
                target=self._refresh_quietly, name="llmops-run-table", daemon=True
            ).start()

    def _read_on(self) -> None:
        """Read in the background what no index has: thousands of journals take a minute."""
        with self._lock:
            if self._reader is not None and self._reader.is_alive():
                return
            self._reader = threading.Thread(
                target=self._read_all, name="llmops-run-table", daemon=True
            )
            self._reader.start()

    def read_all(self) -> None:
        """Read what no index has, then return: a file must not miss runs."""
        self.refresh()
        self._read_all()

    def _read_all(self) -> None:
        while self.table.is_reading:
            before = len(self.table.rows)
            self._refresh_quietly(check_s=_READ_S)
            if len(self.table.rows) == before:
                return  # What is left cannot be read.
            time.sleep(_REST_S)

    def _refresh_quietly(self, check_s: float = 0.0) -> None:
        with suppress(StoreError):  # The next request reports it.
            self.table.refresh(check_s=check_s, followed=self._rows.known_ids())

    def ask(self, query: Query) -> tuple[Selection, Listing]:
        """Return the runs that match, from the last look. Raises QueryError."""
        version = self.table.version
        with self._lock:
            cached = self._answers.get(query)
        if cached is not None and cached[0] == version:
            return cached[1:]
        names = self.table.names_version
        selection = self.table.select(query)
        naming = self._naming(names, self.table.rows)
        row_naming = self._naming(names, selection.rows)
        listing = Listing(
            selection.rows, self.table.catalogue, naming, row_naming, selection.columns
        )
        _keep(self._answers, query, (version, selection, listing), lock=self._lock)
        return selection, listing

    def _naming(self, version: int, rows: Sequence[Row]) -> Naming:
        """Return what the runs are called; another order of the same runs changes nothing."""
        key = (version, frozenset(row.run_id for row in rows))
        with self._lock:
            cached = self._names.get(key)
        naming = cached or Naming(rows)
        _keep(self._names, key, naming, lock=self._lock)
        return naming

    def _news(self) -> dict[str, RunSummary]:
        changed, _, self._seen = self._rows.since(self._seen)
        return {row.run_id: summary_of_row(row) for row in changed}


def _keep(cache: dict[K, V], key: K, value: V, *, lock: threading.Lock) -> None:
    """Keep the newest few."""
    with lock:
        cache.pop(key, None)
        cache[key] = value
        while len(cache) > _KEPT:
            del cache[next(iter(cache))]


def summary_of_row(row: RunRow) -> RunSummary:
    progress = row.progress
    shared = {"run_id", "kind", "name", "cluster", "created_s", "hidden", "state", "attempt"}
    shared |= {"reason", "message", "remedy", "parent"}
    return RunSummary(
        **row.model_dump(include=shared),
        figures=tuple(row.figures),
        progress=progress and Progress(progress.done, progress.total, progress.unit),
    )
