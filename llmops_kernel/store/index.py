"""A SQLite index of the run folders: a cache that is discarded whenever it is in doubt."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from llmops_kernel.store.files import private_folder

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs_v3 (
    run_id TEXT PRIMARY KEY,
    created_s REAL NOT NULL,
    name TEXT NOT NULL,
    cluster TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    summary TEXT NOT NULL
)
"""
_RECORDS = """
CREATE TABLE IF NOT EXISTS records_v1 (run_id TEXT PRIMARY KEY, text TEXT NOT NULL)
"""
"""Values of a run's record, which never changes: `RunIndex.texts`."""
_PLANNED = """
CREATE TABLE IF NOT EXISTS planned_v1 (run_id TEXT PRIMARY KEY, text TEXT NOT NULL)
"""
"""What was planned and measured: `RunIndex.planned`."""
_LOCK_WAIT_S = 10.0
_BROKEN = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT"})

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class IndexRow:
    run_id: str
    created_s: float
    name: str
    cluster: str
    hidden: bool = False
    fingerprint: str = ""
    """Sizes of the files that `summary` was made from; empty before there is one."""
    summary: str = ""
    """A run summary as JSON."""


_COLUMNS = tuple(field.name for field in fields(IndexRow))


def _row(values: dict[str, Any]) -> IndexRow:
    return IndexRow(**{**values, "hidden": bool(values["hidden"])})


class RunIndex:
    """Rows by run id. No method raises: without a usable database, lists are only slower."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, *, summaries: bool = True) -> dict[str, IndexRow]:
        """Return all rows by run id; without `summaries` those are empty, which is faster."""
        columns = [name if summaries or name != "summary" else "''" for name in _COLUMNS]

        def read(db: sqlite3.Connection) -> dict[str, IndexRow]:
            rows = db.execute(f"SELECT {', '.join(columns)} FROM runs_v3")
            records = (dict(zip(_COLUMNS, values, strict=True)) for values in rows)
            return {values["run_id"]: _row(values) for values in records}

        return self._with_db(read, {})

    def summaries(self) -> list[tuple[str, str, str]]:
        """Return (run id, fingerprint, summary) of all rows, faster than `rows`."""
        columns = "run_id, fingerprint, summary"
        return self._with_db(lambda db: list(db.execute(f"SELECT {columns} FROM runs_v3")), [])

    def put(self, rows: Iterable[IndexRow]) -> None:
        values = [tuple(getattr(row, name) for name in _COLUMNS) for row in rows]
        marks = ", ".join("?" for _ in _COLUMNS)
        columns = ", ".join(_COLUMNS)
        self._change(f"INSERT OR REPLACE INTO runs_v3 ({columns}) VALUES ({marks})", values)

    def remove(self, run_ids: Iterable[str]) -> None:
        parameters = [(run_id,) for run_id in run_ids]
        self._change("DELETE FROM runs_v3 WHERE run_id = ?", parameters)
        self._change("DELETE FROM records_v1 WHERE run_id = ?", parameters)
        self._change("DELETE FROM planned_v1 WHERE run_id = ?", parameters)

    def texts(self) -> dict[str, str]:
        """Return what `put_texts` has kept, by run id."""
        return self._with_db(lambda db: dict(db.execute("SELECT run_id, text FROM records_v1")), {})

    def put_texts(self, texts: Mapping[str, str]) -> None:
        """Keep a text about each run's record for the next process."""
        self._change("INSERT OR REPLACE INTO records_v1 VALUES (?, ?)", list(texts.items()))

    def planned(self) -> dict[str, str]:
        """Return what `put_planned` has kept, by run id."""
        return self._with_db(lambda db: dict(db.execute("SELECT run_id, text FROM planned_v1")), {})

    def put_planned(self, texts: Mapping[str, str]) -> None:
        """Keep a text about each run's plan for the next process."""
        self._change("INSERT OR REPLACE INTO planned_v1 VALUES (?, ?)", list(texts.items()))

    def _change(self, statement: str, values: Sequence[tuple[object, ...]]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                db.executemany(statement, values)

        if values:
            self._with_db(write, None)

    def _with_db(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        for _ in range(2):
            try:
                with closing(self._connect()) as db:
                    return work(db)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorname", "") not in _BROKEN:
                    return default  # Locked, read-only or disk full: continue without it.
                self._rename_broken()
            except OSError:
                return default
        return default

    def _connect(self) -> sqlite3.Connection:
        """Open a connection for one operation: safe across threads and forks."""
        private_folder(self.path.parent)
        db = sqlite3.connect(self.path, timeout=_LOCK_WAIT_S)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute(_SCHEMA)
            db.execute(_RECORDS)
            db.execute(_PLANNED)
        except BaseException:
            db.close()
            raise
        return db

    def _rename_broken(self) -> None:
        """Rename the broken file, unless another process has just done so."""
        with self._rebuild_lock():
            if not self._is_broken():
                return
            suffix = f".broken-{time.strftime('%y%m%d-%H%M%S')}-{os.getpid()}"
            for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
                path = self.path.with_name(name)
                if path.exists():
                    path.rename(path.with_name(name + suffix))

    def _is_broken(self) -> bool:
        try:
            with closing(sqlite3.connect(self.path, timeout=_LOCK_WAIT_S)) as db:
                return bool(db.execute("PRAGMA quick_check").fetchone()[0] != "ok")
        except sqlite3.DatabaseError as error:
            return getattr(error, "sqlite_errorname", "") in _BROKEN

    @contextmanager
    def _rebuild_lock(self) -> Iterator[None]:
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


# --- Present run folders, without a look at each of thousands on every call ---


_SETTLED_S = 2.0
"""A folder that changed more recently than this is read again: its time of change is coarse."""


class RunFolders:
    """The names of the folders that hold a run record, read again when the folder has changed.

    A run's folder is there before its record; such names are looked at on every call.
    """

    def __init__(
        self, root: Path, *, is_id: Callable[[str], bool], clock: Callable[[], float] = time.time
    ) -> None:
        self._root, self._is_id, self._clock = root, is_id, clock
        self._lock = threading.Lock()
        self._changed_ns = 0
        self._present: frozenset[str] = frozenset()
        self._empty: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the ids of all runs. Raises OSError if the folder cannot be read."""
        with self._lock:
            try:
                changed_ns = os.stat(self._root).st_mtime_ns
            except FileNotFoundError:
                self._present, self._changed_ns = frozenset(), 0
                return self._present
            if changed_ns != self._changed_ns:
                names = {name for name in os.listdir(self._root) if self._is_id(name)}
                self._look(names, indexed=names & self._present)
                is_settled = self._clock() - changed_ns / 1e9 > _SETTLED_S
                self._changed_ns = changed_ns if is_settled else 0
            elif self._empty:
                self._look(self._present | self._empty, indexed=self._present)
            return self._present

    def _look(
        self, names: frozenset[str] | set[str], *, indexed: frozenset[str] | set[str]
    ) -> None:
        # As texts: ten thousand `Path` objects would take longer than the look itself.
        new = {n for n in names - indexed if os.path.exists(f"{self._root}/{n}/record.json")}
        self._present = frozenset(indexed | new)
        self._empty = frozenset(names - self._present)
