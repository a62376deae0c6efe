"""The columnar copy of all journals: Parquet files beside the runs, made again where in doubt."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.errors import LLMOpsError, RunNotFoundError, StoreError
from llmops_kernel.services.query.rows import RunRows, clean_lines, rows_of
from llmops_kernel.services.query.tables import (
    FIRST,
    REPLACED,
    Column,
    Table,
    schema_hash,
    tables,
)
from llmops_kernel.store.files import file_lock, private_home, store_errors, write_whole
from llmops_kernel.store.store import RunStore
from llmops_kernel.version import VERSION

Report = Callable[[str], None]
BATCH_RUNS, BATCH_BYTES = 400, 96 * 2**20
"""A segment has so many runs, or so much of their journals."""
_STEPS = "all_steps"
_LEAST_LIVE = 0.75
"""Segments with a smaller share of rows that still count are written again."""
_MOST_SMALL = 8
_OTHERS_AGE_S = 7 * 24 * 3600.0
_MAX_LINE_BYTES = 256 * 2**20


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


@dataclass
class Segment:
    """A folder with a Parquet file a table, of some runs as they were at one time."""

    runs: list[str]
    files: dict[str, int]
    """Size in bytes by the name of the table."""


@dataclass
class Manifest:
    """What the copy consists of: which segment has the rows of which run, as of which stamp."""

    segments: dict[str, Segment] = field(default_factory=dict)
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Run id -> (stamp of its folder, segment)."""

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the saved one; empty where there is none, or files are missing or cut short."""
        try:
            saved = json.loads((folder / "manifest.json").read_bytes())
            if saved["version"] != VERSION:
                return cls()
            segments = {name: Segment(**each) for name, each in saved["segments"].items()}
            runs = {run: (stamp, name) for run, (stamp, name) in saved["runs"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()
        whole = {name: each for name, each in segments.items() if _is_whole(folder / name, each)}
        return cls(whole, {run: at for run, at in runs.items() if at[1] in whole})

    def write(self, folder: Path) -> None:
        segments = {name: vars(each) for name, each in self.segments.items()}
        saved = {"version": VERSION, "segments": segments, "runs": self.runs}
        write_whole(folder / "manifest.json", json.dumps(saved, separators=(",", ":")).encode())

    def dead(self) -> dict[str, list[str]]:
        """Return the runs of each segment that are deleted, or newer in another one."""
        where = {run: name for run, (_, name) in self.runs.items()}
        return {
            name: [run for run in each.runs if where.get(run) != name]
            for name, each in self.segments.items()
        }

    def drop_dead(self) -> None:
        """Remove the segments that no run needs."""
        dead = self.dead()
        self.segments = {
            name: each for name, each in self.segments.items() if len(dead[name]) < len(each.runs)
        }


def _is_whole(folder: Path, segment: Segment) -> bool:
    try:
        return all(
            (folder / f"{table}.parquet").stat().st_size == size
            for table, size in segment.files.items()
        )
    except OSError:
        return False


class ColumnarCopy:
    """The rows of all runs for one DuckDB connection, brought up to date when it is opened.

    What has not changed is read from the copy; runs that are new, have grown or got other notes
    are read again. Where the copy cannot be written, their rows are in memory only, and `notices`
    says so. Any number of processes may do this at once: one of them writes, and none removes a
    file that another reads.
    """

    def __init__(self, store: RunStore, db: Any, *, report: Report | None = None) -> None:
        self._store, self._db = store, db
        self._report = report or (lambda _: None)
        self.tables = tables()
        self._stored = {table.name: table for table in self.tables if table.is_stored}
        self.root = store.root / "query"
        self.folder = self.root / f"{schema_hash(self.tables)}"
        self.manifest = Manifest()
        self.notices: list[str] = []
        self._stamps: dict[str, str] = {}
        self._db.execute("CREATE SCHEMA fresh")
        for table in self._stored.values():
            columns = ", ".join(f'"{c.name}" {c.type}' for c in table.stored)
            self._db.execute(f"CREATE TABLE fresh.{table.name} ({columns})")

    @contextmanager
    def opened(self, *, rebuild: bool = False) -> Iterator[None]:
        """Bring the copy up to date; it stays as it is until the end. Raises StoreError."""
        self._stamps = _stamps(self._store.root / "runs")
        readers = self._lock_as_reader()
        try:
            self.manifest = Manifest() if rebuild else Manifest.read(self.folder)
            if rebuild or self._changed() or self._gone():
                if readers is not None:
                    os.close(readers)
                readers = self._update(rebuild=rebuild)
            self._make_views()
            yield
        finally:
            if readers is not None:
                os.close(readers)

    def _changed(self) -> list[str]:
        known = self.manifest.runs
        return sorted(run for run, at in self._stamps.items() if known.get(run, ("",))[0] != at)

    def _gone(self) -> list[str]:
        return [run for run in self.manifest.runs if run not in self._stamps]

    def _lock_as_reader(self) -> int | None:
        """Keep others from removing files; None where there is nothing to remove yet."""
        with suppress(OSError):
            readers = os.open(self.root / "readers.lock", os.O_RDONLY)
            fcntl.flock(readers, fcntl.LOCK_SH)
            return readers
        return None

    def _update(self, *, rebuild: bool) -> int | None:
        try:
            private_home(self._store.root)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.root / "readers.lock").touch(mode=0o600)
            with self._writing():
                self.manifest = Manifest() if rebuild else Manifest.read(self.folder)
                self._clean(removes=rebuild)
                self._take_changes(saves=True)
                return self._lock_as_reader()
        except (OSError, StoreError) as error:
            reason = error.message if isinstance(error, StoreError) else str(error)
            self.notices.append(f"The copy for queries is in memory only: {reason}")
            self._take_changes(saves=False)
            return self._lock_as_reader()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        path = self.root / "update.lock"
        probe = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._report(
                "Waiting for another query that brings the copy of the journals up to date"
            )
        finally:
            os.close(probe)
        with file_lock(path, mode=0o600):
            yield

    def _take_changes(self, *, saves: bool) -> None:
        for run in self._gone():
            del self.manifest.runs[run]
        changed, batch, num_bytes = self._changed(), list[RunRows](), 0
        for done, run in enumerate(changed, start=1):
            with suppress(RunNotFoundError):  # Deleted meanwhile.
                batch.append(rows_of(self._store, run))
            num_bytes += _journal_bytes(self._stamps[run])
            if len(batch) < BATCH_RUNS and num_bytes < BATCH_BYTES and done < len(changed):
                continue
            saves = self._take(batch, saves=saves)
            batch, num_bytes = [], 0
            if len(changed) > BATCH_RUNS:
                self._report(f"Reading the journals: {done:,} of {len(changed):,} runs")
        if saves:
            self._compact()
            self.manifest.drop_dead()
            self.manifest.write(self.folder)

    def _take(self, batch: Sequence[RunRows], *, saves: bool) -> bool:
        """Add the rows of some runs as a segment; return whether segments can be written."""
        self._insert(batch)
        runs = [rows.run for rows in batch]
        name = self._save(runs) if saves and runs else ""
        # Without a segment the rows stay in memory, and no other segment has them any more.
        self.manifest.runs |= {run: (self._stamps[run], name) for run in runs}
        if name:
            self._forget_fresh()
            self.manifest.write(self.folder)
        return saves and (bool(name) or not runs)

    def _forget_fresh(self) -> None:
        for table in self._stored:
            self._db.execute(f"TRUNCATE fresh.{table}")

    def _insert(self, batch: Sequence[RunRows]) -> None:
        for table in self._stored.values():
            lines = [line for rows in batch for line in rows.lines.get(table.name, ())]
            if lines:
                fields = ", ".join(f'"{c.field or c.name}":"{c.type}"' for c in table.stored)
                columns = ", ".join(_expression(column) for column in table.stored)
                self._db.execute(
                    f"INSERT INTO fresh.{table.name} SELECT {columns} FROM (SELECT"
                    f" json_transform(unnest($lines::JSON[]), '{{{fields}}}') AS e)",
                    {"lines": lines},
                )
        files = [file for rows in batch for file in rows.files]
        clean = [file for file in files if file.is_clean]
        if clean:
            paths = {"paths": [file.path for file in clean]}
            lines = [file.line() for file in clean]
            self._insert_steps(_from_files(self._stored[_STEPS]), lines, paths)
        for file in files:
            if not file.is_clean:
                pairs = list(clean_lines(file))
                values = {
                    "lines": [pair[0] for pair in pairs],
                    "again": [pair[1] for pair in pairs],
                }
                self._insert_steps(_from_lines(self._stored[_STEPS]), [file.line()], values)

    def _insert_steps(self, source: str, files: list[str], values: Mapping[str, Any]) -> None:
        columns = ", ".join(_step_expression(c) for c in self._stored[_STEPS].stored)
        self._db.execute(
            f"INSERT INTO fresh.{_STEPS} SELECT {columns} FROM ({source}) AS e JOIN (SELECT"
            f" json_transform(unnest($files::JSON[]), '{_FILE}') AS m) ON m.path = e.filename"
            " WHERE e.kind = 'step' AND e.seq <= m.last_seq",
            {"files": files, **values},
        )

    def _save(self, runs: list[str]) -> str:
        """Write the rows in memory as a segment; return its name, or nothing if that failed."""
        name = f"s{secrets.token_hex(6)}"
        partial = self.folder / f".{name}"
        try:
            partial.mkdir(mode=0o700)
            files = {}
            for table in self._stored:
                if self._db.execute(f"SELECT 1 FROM fresh.{table} LIMIT 1").fetchone():
                    files[table] = self._write(
                        f"SELECT * FROM fresh.{table}", partial / f"{table}.parquet"
                    )
            partial.rename(self.folder / name)
        except Exception as error:
            if not isinstance(error, OSError | _io_errors()):
                raise
            shutil.rmtree(partial, ignore_errors=True)
            self.notices.append(f"The copy for queries is in memory only: {_first_line(error)}")
            return ""
        self.manifest.segments[name] = Segment(runs, files)
        return name

    def _write(self, rows: str, path: Path) -> int:
        self._db.execute(
            f"COPY ({rows}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)"
        )
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return path.stat().st_size

    def _compact(self) -> None:
        """Write segments with few rows that still count again, and many small ones as one."""
        self.manifest.drop_dead()
        dead = self.manifest.dead()
        live = {name: len(s.runs) - len(dead[name]) for name, s in self.manifest.segments.items()}
        small = [name for name, count in live.items() if count < BATCH_RUNS // 4]
        stale = [
            name
            for name, segment in self.manifest.segments.items()
            if live[name] < _LEAST_LIVE * len(segment.runs)
        ]
        merged = {*stale, *(small if len(small) > _MOST_SMALL else ())}
        if not merged:
            return
        names = [name for name in self.manifest.segments if name in merged]
        runs = sorted(
            run
            for name in names
            for run in set(self.manifest.segments[name].runs) - set(dead[name])
        )
        for table in self._stored:
            if sources := self._sources(table, names, dead):
                self._db.execute(f"INSERT INTO fresh.{table} {sources}")
        if name := self._save(runs):
            for run in runs:
                self.manifest.runs[run] = (self.manifest.runs[run][0], name)
        self._forget_fresh()

    def _sources(self, table: str, names: Sequence[str], dead: Mapping[str, Sequence[str]]) -> str:
        """Return the query of a table's rows in some segments; empty if they have none."""
        having = [name for name in names if table in self.manifest.segments[name].files]
        whole = [name for name in having if not dead[name]]
        parts = [self._reading(table, whole)] if whole else []
        for name in having:
            if dead[name]:
                runs = ", ".join(map(literal, dead[name]))
                parts.append(f"{self._reading(table, [name])} WHERE run NOT IN ({runs})")
        return " UNION ALL ".join(parts)

    def _reading(self, table: str, names: Sequence[str]) -> str:
        return f"SELECT * FROM read_parquet([{', '.join(map(literal, self._paths(table, names)))}])"

    def _paths(self, table: str, names: Sequence[str]) -> list[str]:
        return [str(self.folder / name / f"{table}.parquet") for name in names]

    @property
    def paths(self) -> list[str]:
        """Return the files that a query may read."""
        segments = self.manifest.segments.items()
        return [
            path for name, each in segments for t in each.files for path in self._paths(t, [name])
        ]

    def _make_views(self) -> None:
        dead = self.manifest.dead()
        for table in self.tables:
            query = table.sql
            if not query:
                columns = ", ".join(
                    f'{c.computed} AS "{c.name}"' if c.computed else f'"{c.name}"'
                    for c in table.columns
                )
                stored = table.source or table.name
                saved = self._sources(stored, list(self.manifest.segments), dead)
                rows = f"SELECT * FROM fresh.{stored}"
                rows = f"{saved} UNION ALL {rows}" if saved else rows
                where = f" WHERE {table.where}" if table.where else ""
                query = f"SELECT {columns} FROM ({rows}){where}"
            self._db.execute(f"CREATE OR REPLACE VIEW {table.name} AS {query}")

    def _clean(self, *, removes: bool) -> None:
        """Remove what killed processes left, segments of no use, and copies of other versions."""
        with suppress(OSError):
            readers = os.open(self.root / "readers.lock", os.O_RDONLY)
            try:
                fcntl.flock(readers, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in self.folder.iterdir():
                    if path.is_dir() and path.name not in self.manifest.segments:
                        shutil.rmtree(path, ignore_errors=True)
                for path in self.root.iterdir():
                    if path.is_dir() and path != self.folder and (removes or _is_old(path)):
                        shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(readers)


def _is_old(folder: Path) -> bool:
    with suppress(OSError):
        return time.time() - (folder / "manifest.json").stat().st_mtime > _OTHERS_AGE_S
    return True


def _first_line(error: Exception) -> str:
    message = error.message if isinstance(error, LLMOpsError) else str(error)
    return message.strip().splitlines()[0]


def _io_errors() -> type[Exception]:
    import duckdb

    return duckdb.IOException


# --- SQL of rows on their way in ---


_FILE = json.dumps(
    {
        "path": "VARCHAR",
        "run": "VARCHAR",
        "first": "BIGINT",
        "last_seq": "BIGINT",
        "replaced_from": "BIGINT",
        "peak_ratio": "DOUBLE",
        "undone": [{"from_step": "BIGINT", "time_s": "DOUBLE"}],
    }
)
"""Fields of `StepFile.line`."""


def _from_files(steps: Table) -> str:
    columns = {"kind": "VARCHAR"} | {c.field: c.type for c in steps.stored if c.field}
    named = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in columns.items())
    return (
        "SELECT *, false AS again FROM read_json($paths, format = 'newline_delimited',"
        f" columns = {{{named}}}, filename = true, ignore_errors = true,"
        f" maximum_object_size = {_MAX_LINE_BYTES})"
    )


def _from_lines(steps: Table) -> str:
    columns = {"kind": "VARCHAR"} | {c.field: c.type for c in steps.stored if c.field}
    transformed = f"json_transform(line::JSON, {literal(json.dumps(columns))})"
    return (
        f"SELECT unnest({transformed}), again, $files[1]->>'path' AS filename FROM"
        " (SELECT unnest($lines) AS line, unnest($again::BOOLEAN[]) AS again)"
    )


def _expression(column: Column, of: str = "e") -> str:
    value = f'{of}."{column.field or column.name}"'
    return f"CASE WHEN {value} BETWEEN 0 AND 1 THEN {value} END" if column.is_share else value


def _step_expression(column: Column) -> str:
    if column.name == "run":
        return "m.run"
    if column.name == FIRST:
        return "e.step = m.first"
    if column.name == REPLACED:
        return (
            "e.again OR coalesce(e.step >= m.replaced_from, false) OR (m.undone IS NOT NULL"
            " AND len(list_filter(m.undone, lambda r: e.step > r.from_step"
            " AND e.time_s <= r.time_s)) > 0)"
        )
    if column.is_share:
        return f"{_expression(column)} / m.peak_ratio"
    return _expression(column)


def _journal_bytes(stamp: str) -> int:
    """Return the size of the journal's files that a stamp names."""
    parts = (part.rpartition(":") for part in stamp.split(" "))
    return sum(int(size) for name, _, size in parts if name.endswith(".jsonl"))


def _stamps(root: Path) -> dict[str, str]:
    """Return for each run a text that changes when anything that its rows are made of does."""
    with store_errors("read", root):
        names = [name for name in os.listdir(root) if name[0] != "."] if root.exists() else []
    stamps = {}
    for name in names:  # As texts, and few calls: there may be tens of thousands.
        with suppress(FileNotFoundError, NotADirectoryError):
            stamps[name] = _stamp(f"{root}/{name}")
    return stamps


def _stamp(folder: str) -> str:
    """Return the stamp of a run's folder. Raises FileNotFoundError without a record."""
    record = os.stat(f"{folder}/record.json")
    parts = [f"{record.st_mtime_ns}"]
    for name in ("attempts.jsonl", "notes.json"):
        try:
            status = os.stat(f"{folder}/{name}")
        except OSError:
            continue
        parts.append(f"{name}:{status.st_mtime_ns}:{status.st_size}")
    with suppress(OSError), os.scandir(f"{folder}/journal") as entries:
        parts += sorted([f"{entry.name}:{entry.stat().st_size}" for entry in entries])
    return " ".join(parts)
