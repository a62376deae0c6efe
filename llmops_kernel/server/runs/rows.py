"""The list of runs, kept up to date from one look to the next."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict, dataclass

from llmops_kernel.errors import LLMOpsError, RunNotFoundError
from llmops_kernel.kinds.kind import Action, RunKind
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import TERMINAL, RunState
from llmops_kernel.server.runs.followers import Followers, Watched, forget
from llmops_kernel.server.wire.runs import RunProgress, RunRow
from llmops_kernel.services.run_table import FamilyNames
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.whole_run import TimeLeft
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.store.store import RunStore

MAX_RUNS = 1000
LOOK_S = 1.5
"""How long one look reads journals that no summary is kept of; the rest comes with the next."""

Stamp = tuple[int, ...]


@dataclass
class _RunEntry:
    row: RunRow
    stamp: Stamp
    version: int
    watched: Watched | None = None


class RunRows:
    """A run that has ended costs two file stamps a look; a running one has a shared follower."""

    def __init__(self, store: RunStore, followers: Followers, *, max_runs: int = MAX_RUNS) -> None:
        self._store = store
        self._max_runs = max_runs
        self._followers = followers
        self._lock = threading.Lock()
        self._known: dict[str, _RunEntry] = {}
        self._removed: dict[str, int] = {}
        self._users = 0
        self._names = FamilyNames(store)
        self._differs: dict[str, str] = {}
        self._named: list[str] = []
        self.version = 0
        """Counts looks; 0 before the first."""
        self.read_version = 0
        """The number of the first look that had all runs."""

    def look(self) -> None:
        """Bring the rows up to date. Raises StoreError, and what was known stays."""
        with self._lock:
            every = self._store.ids()
            ids = every[: self._max_runs]
            self.version += 1
            self._forget(set(ids), every=set(every))
            cached = self._store.cached_summaries(ids) if len(self._known) < len(ids) else {}
            until_s = time.monotonic() + LOOK_S
            for run_id in ids:
                if run_id in self._known or run_id in cached or time.monotonic() < until_s:
                    self._look_at(run_id, cached.get(run_id))
                else:
                    self.read_version = self.version + 1  # The rest comes with a later look.
            self.read_version = self.read_version or self.version
            self._name(every)

    def rows(self, *, hidden: bool = True) -> list[RunRow]:
        """Return the rows, newest first; `hidden` includes runs of benchmarks and self-tests."""
        with self._lock:
            rows = [entry.row for entry in self._known.values() if hidden or not entry.row.hidden]
        return sorted(rows, key=lambda row: (row.created_s, row.run_id), reverse=True)

    def known_ids(self) -> frozenset[str]:
        """Return the runs whose rows are kept up to date: none while nobody uses the rows."""
        with self._lock:
            return frozenset(self._known) if self._users else frozenset()

    def differs(self, run_id: str) -> str:
        """Return what a listed run differs in from the others of its config; else nothing."""
        # Without the lock, which a look may hold for long: the dictionary is never changed.
        return self._differs.get(run_id, "")

    def since(self, version: int) -> tuple[list[RunRow], list[str], int]:
        """Return rows that changed after `version`, ids that went, and the version now."""
        with self._lock:
            changed = [entry.row for entry in self._known.values() if entry.version > version]
            removed = [
                run_id for run_id, removed_at in self._removed.items() if removed_at > version
            ]
            return changed, removed, self.version

    def open(self) -> None:
        """Register a user of the rows, who calls `close` at the end."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Unregister a user; the last one closes the followers of running runs."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for entry in self._known.values():
                self._let_go(entry)
            self._known.clear()

    def _forget(self, listed: set[str], *, every: set[str]) -> None:
        for run_id in self._known.keys() - listed:
            self._let_go(self._known.pop(run_id))
            self._removed[run_id] = self.version
            if run_id not in every:  # Deleted; one that is only older keeps its panel.
                forget(run_id)

    def _name(self, every: list[str]) -> None:
        """Say what each run differs in; a new run may change what its family is called by."""
        if self._named == every:
            return
        self._named = every
        self._differs = self._names.names()
        for entry in self._known.values():
            differs = self._differs.get(entry.row.run_id, "")
            if entry.row.differs != differs:
                entry.row = entry.row.model_copy(update={"differs": differs})
                entry.version = self.version

    def _let_go(self, entry: _RunEntry) -> None:
        if entry.watched is not None:
            self._followers.give_back(entry.watched)
            entry.watched = None

    def _look_at(self, run_id: str, cached: RunSummary | None) -> None:
        entry = self._known.get(run_id)
        folder = RunFolder(self._store.root / "runs" / run_id)
        stamp = _stamp(folder)
        if entry is not None and entry.watched is None and entry.stamp[:2] == stamp[:2]:
            if entry.stamp != stamp:
                self._renote(entry, stamp)
            return
        try:
            if entry is None and cached is not None and cached.state in TERMINAL:
                row, watched = row_of(cached, self._store), None
            else:
                row, watched = self._read(run_id, entry.watched if entry else None)
        except (LLMOpsError, OSError):
            return  # Being deleted, or broken: opening it by name reports the reason.
        row = row.model_copy(update={"differs": self._differs.get(run_id, "")})
        version = entry.version if entry is not None and entry.row == row else self.version
        self._known[run_id] = _RunEntry(row=row, stamp=stamp, version=version, watched=watched)

    def _renote(self, entry: _RunEntry, stamp: Stamp) -> None:
        notes = _notes(self._store.notes(entry.row.run_id))
        entry.row, entry.stamp = entry.row.model_copy(update=notes), stamp
        entry.version = self.version

    def _read(self, run_id: str, watched: Watched | None) -> tuple[RunRow, Watched | None]:
        fingerprint = self._store.fingerprint(run_id)
        watched = watched or self._followers.take(run_id)
        try:
            watched.poll()
            with watched.lock:
                row, is_over = read_row(watched, self._store), watched.is_over
        except BaseException:
            self._followers.give_back(watched)
            raise
        if not is_over:
            return row, watched
        self._store.cache_summary(watched.summary(), fingerprint=fingerprint)
        self._followers.give_back(watched)
        return row, None


def read_row(watched: Watched, store: RunStore) -> RunRow:
    """Return the row of a run that has been polled."""
    return row_of(watched.summary(), store, time_left=watched.time_left(time.time()))


def row_of(summary: RunSummary, store: RunStore, *, time_left: TimeLeft | None = None) -> RunRow:
    run_id = summary.run_id
    attempts = store.attempts(run_id)
    shared = {"run_id", "kind", "name", "cluster", "created_s", "hidden", "state", "attempt"}
    shared |= {"reason", "message", "remedy", "figures", "curve", "parent"}
    kind, progress = kind_named(summary.kind), summary.progress
    column = kind.column(kind.curve)
    return RunRow(
        **summary.model_dump(include=shared),
        **_notes(store.notes(run_id)),
        differs="",
        progress=RunProgress(**asdict(progress)) if progress else None,
        fraction=progress.fraction if progress else None,
        eta_s=None if time_left is None else time_left.seconds,
        eta_is_least=time_left is not None and time_left.is_least,
        curve_label="" if column is None else column.label,
        actions=actions_now(kind, summary.state),
        submission_id=attempts[-1].submission_id if attempts else None,
    )


def actions_now(kind: RunKind, state: RunState) -> list[Action]:
    """Return what can be done to a run of that kind in that state."""
    has_ended = state in TERMINAL
    possible: dict[Action, bool] = {
        "stop": not has_ended and state != "STOPPING",
        "retry": has_ended,
        "resubmit": True,
        "compare": True,
        "delete": has_ended,
        "chat": has_ended,
    }
    return [name for name, is_possible in possible.items() if is_possible and name in kind.actions]


def _notes(notes: RunNotes) -> dict[str, str | bool]:
    return {"title": notes.title, "starred": notes.starred}


def _stamp(folder: RunFolder) -> Stamp:
    """Return a stamp that changes when an ended run is tried again or gets other notes."""
    return tuple(_changed_ns(path) for path in (folder.journal, folder.attempts, folder.notes))


def _changed_ns(path: str | os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def missing(run_id: str) -> RunNotFoundError:
    return RunNotFoundError(
        f"Run {run_id} no longer exists", remedy="it was deleted; close its panel"
    )
