"""Followers, one per run, shared by all of its users: browsers, the list of runs, requests."""

from __future__ import annotations

import json
import secrets
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from llmops_kernel.api.run_handle import Run
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.verdict import VerdictOfPanel
from llmops_kernel.store.files import private_folder, write_whole
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.view import MAX_CELLS, RunView
from llmops_kernel.store.journal.whole_run import TimeLeft
from llmops_kernel.store.paths import cache
from llmops_kernel.store.store import RunStore
from llmops_kernel.version import VERSION
from llmops_kernel.views.columns import PackedRows, row_bytes, run_columns
from llmops_kernel.views.panel import PanelState, RunColumn
from llmops_kernel.views.snapshot import snapshot
from llmops_kernel.views.summary import summarise

# --- Cached panels of long runs that have ended ---


MIN_ROWS = 5_000
"""A shorter journal is read as quickly."""
_FORMAT = f"5 {VERSION}"


@dataclass(frozen=True, kw_only=True)
class CachedPanel:
    fingerprint: str
    """Fingerprint of the journal that it was made from."""
    summary: RunSummary
    panel: PanelState
    rows: bytes


def read_cached(run_id: str, *, fingerprint: str) -> CachedPanel | None:
    """Return the kept panel; None if there is none, or if its journal or version differs."""
    try:
        data = _path(run_id).read_bytes()
        (length,) = struct.unpack_from("<I", data)
        head = json.loads(data[4 : 4 + length])
        if (head["format"], head["fingerprint"]) != (_FORMAT, fingerprint):
            return None
        summary = RunSummary.model_validate(head["summary"])
        panel = PanelState.model_validate(head["panel"])
    except (OSError, ValueError, KeyError, TypeError, struct.error, ValidationError):
        return None
    return CachedPanel(
        fingerprint=fingerprint, summary=summary, panel=panel, rows=data[4 + length :]
    )


def write_cached(run_id: str, panel: CachedPanel) -> None:
    """Keep the panel. If the cache cannot be written, only time is lost."""
    head = {
        "format": _FORMAT,
        "fingerprint": panel.fingerprint,
        "summary": panel.summary.model_dump(mode="json"),
        "panel": panel.panel.model_dump(mode="json"),
    }
    text = json.dumps(head).encode()
    path = _path(run_id)
    with suppress(OSError):
        private_folder(path.parent)
        write_whole(path, struct.pack("<I", len(text)) + text + panel.rows)


def forget(run_id: str) -> None:
    with suppress(OSError):
        _path(run_id).unlink(missing_ok=True)


def _path(run_id: str) -> Path:
    return cache() / "panels" / f"{run_id}.bin"


class Watched:
    """A run that is being read; `poll` first, then look.

    A long run that has ended is shown from its saved panel, until its journal grows.
    """

    def __init__(
        self,
        run: Run,
        store: RunStore,
        *,
        min_rows: int = MIN_ROWS,
        max_cells: int = MAX_CELLS,
        live_cells: int | None = None,
    ) -> None:
        self.run = run
        self._max_cells, self._live_cells = max_cells, live_cells
        self._min_rows = min_rows
        self.lock = threading.RLock()
        self.version = 0
        """Counts polls that brought something."""
        self._store = store
        self._kept = read_cached(run.id, fingerprint=store.fingerprint(run.id))
        self._follower: Follower | None = None
        self._packed = PackedRows()
        self._verdict = VerdictOfPanel()
        self._name = secrets.token_hex(4)

    @property
    def view(self) -> RunView:
        """Return the run's view; the journal is read on first use."""
        return self._followed().view

    @property
    def is_over(self) -> bool:
        return self._kept is not None or self._followed().is_over

    @property
    def generation(self) -> str:
        """Return an id of the rows: those of one generation only grow."""
        number = "kept" if self._kept is not None else self._packed.generation
        return f"{self._name}-{number}"

    @property
    def columns(self) -> list[RunColumn]:
        """Return the columns of the rows, as the browser reads them."""
        if self._kept is not None:
            return self._kept.panel.columns
        return run_columns(self._packed.columns)

    @property
    def num_rows(self) -> int:
        if self._kept is None:
            return len(self._packed)
        return len(self._kept.rows) // row_bytes(self.columns) if self.columns else 0

    def rows(self, first: int = 0) -> bytes:
        if self._kept is not None:
            return self._kept.rows[first * row_bytes(self.columns) :]
        return self._packed.rows(first)

    def summary(self) -> RunSummary:
        if self._kept is not None:
            return self._kept.summary
        return summarise(self.run.record, self.view, self.run.attempts)

    def time_left(self, now_s: float) -> TimeLeft | None:
        return None if self._kept is not None else self.view.time_left(now_s)

    def panel(self, now_s: float) -> PanelState:
        """Return the state of the run's panel; a kept one may have an older title."""
        if self._kept is not None:
            return self._kept.panel
        record = self.run.record
        verdict = self._verdict(record, self.view)
        return snapshot(self.view, record, now_s=now_s, verdict=verdict)

    def poll(self) -> None:
        """Read what is new."""
        with self.lock:
            fingerprint = self._store.fingerprint(self.run.id)
            if self._kept is not None:
                if self._kept.fingerprint == fingerprint:
                    return
                self._kept = None
                self.version += 1
            self._poll(self._followed(), fingerprint)

    def _poll(self, follower: Follower, fingerprint: str) -> None:
        news = bool(follower.poll())
        if follower.is_over and news:
            follower.drain()
        if self._live_cells is not None and not follower.is_over:
            follower.thin(max_cells=self._live_cells)
        first = self._packed.sync(follower.view)
        if news or first is not None:
            self.version += 1
            if follower.is_over and len(self._packed) >= self._min_rows:
                self._keep(fingerprint)

    def _keep(self, fingerprint: str) -> None:
        """Cache the panel once its end is read; `fingerprint` is from before that."""
        if self._store.fingerprint(self.run.id) == fingerprint:
            panel, rows = self.panel(time.time()), self._packed.rows()
            cached_panel = CachedPanel(
                fingerprint=fingerprint, summary=self.summary(), panel=panel, rows=rows
            )
            write_cached(self.run.id, cached_panel)

    def _followed(self) -> Follower:
        with self.lock:
            if self._follower is None:
                self._follower = self.run.follower(max_cells=self._max_cells)
                if self._kept is not None:
                    self._follower.poll()
            return self._follower

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()


class Followers:
    """Shared followers, counted: `take` one and `give_back`; the last user closes it."""

    def __init__(
        self,
        backend: Backend,
        *,
        min_rows: int = MIN_ROWS,
        max_cells: int = MAX_CELLS,
        live_cells: int | None = None,
    ) -> None:
        """Cache panels of ended runs from `min_rows` on; a view has at most `max_cells` numbers.

        Of a run that has not ended at most `live_cells`: for users of many runs who show no rows.
        """
        self.store = backend.store
        self._backend = backend
        self._min_rows, self._max_cells, self._live_cells = min_rows, max_cells, live_cells
        self._lock = threading.Lock()
        self._open: dict[str, Watched] = {}
        self._users: dict[str, int] = {}

    def take(self, ref: str) -> Watched:
        """Return the run's follower; call `give_back` after use. Raises RunNotFoundError."""
        run_id = self.store.resolve(ref)
        with self._lock:
            if run_id not in self._open:
                self._open[run_id] = Watched(
                    Run(self._backend, run_id),
                    self.store,
                    min_rows=self._min_rows,
                    max_cells=self._max_cells,
                    live_cells=self._live_cells,
                )
            self._users[run_id] = self._users.get(run_id, 0) + 1
            return self._open[run_id]

    def give_back(self, watched: Watched) -> None:
        run_id = watched.run.id
        with self._lock:
            self._users[run_id] -= 1
            if self._users[run_id]:
                return
            del self._users[run_id], self._open[run_id]
        watched.close()

    @contextmanager
    def watching(self, ref: str) -> Iterator[Watched]:
        """Yield the follower for one request, already polled."""
        watched = self.take(ref)
        try:
            watched.poll()
            yield watched
        finally:
            self.give_back(watched)

    def __len__(self) -> int:
        return len(self._open)
