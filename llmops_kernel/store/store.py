"""The run store: one folder per run is the source of truth; an index makes listing fast."""

from __future__ import annotations

import difflib
import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from llmops_kernel.errors import RunNotFoundError, RunStateError, StoreError
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.files import private_home, store_errors, write_new, write_whole
from llmops_kernel.store.index import IndexRow, RunFolders, RunIndex
from llmops_kernel.store.journal.journal import Deduplicator, FolderTail
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.paths import RunFolder, home, packages
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.run_notes import NO_NOTES, RunNotes, read_notes, write_notes

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}\Z")
_LAST = re.compile(r"last(?:~(\d+))?\Z")
DELETED_PREFIX = ".deleted-"
"""Prefix of the folder of a run that is being deleted: lists do not show it."""
__all__ = ["DELETED_PREFIX", "RunStore", "RunSummary", "remove_tree"]
_list = list  # `RunStore.list` hides the built-in inside the class.


class RunStore:
    """All runs below one home folder. Safe for any number of processes at once."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = home() if root is None else Path(root).absolute()
        self._runs = self.root / "runs"
        self.index = RunIndex(self.root / "runs.sqlite")
        self._folders = RunFolders(self._runs, is_id=lambda name: bool(_RUN_ID.match(name)))
        self._listed: dict[str, IndexRow] = {}
        self._broken: dict[str, int] = {}
        self._deleted = self.root / "deleted-runs"

    @property
    def packages(self) -> Path:
        """Return the folder of built packages that are kept for `diff`."""
        return packages(self.root)

    def create(
        self, record: RunRecord, *, config_yaml: str, git_diff: str = "", notes: RunNotes = NO_NOTES
    ) -> RunFolder:
        """Make the run's folder. The record comes last: with it the folder is a run.

        Raises StoreError when the run exists or the disk refuses.
        """
        if not _RUN_ID.match(record.run_id):
            raise StoreError(
                f"{record.run_id!r} cannot name a run.",
                remedy="use letters, digits, dashes, dots and underscores",
            )
        folder = RunFolder(self._runs / record.run_id)
        is_new = not folder.root.exists()
        try:
            self._write_run(folder, record, config_yaml, git_diff, notes)
        except StoreError:
            if is_new:
                shutil.rmtree(folder.root, ignore_errors=True)
            raise
        self.index.put([_row(record)])
        return folder

    def _write_run(
        self,
        folder: RunFolder,
        record: RunRecord,
        config_yaml: str,
        git_diff: str,
        notes: RunNotes,
    ) -> None:
        if folder.record.exists():
            raise _exists(record.run_id)
        with store_errors("write run", folder.root):
            private_home(self.root)
            folder.journal.mkdir(parents=True, exist_ok=True)
            write_whole(folder.config, config_yaml.encode())
            if git_diff:
                write_whole(folder.git_diff, git_diff.encode(errors="surrogateescape"))
            if notes != NO_NOTES:
                write_whole(folder.notes, notes.model_dump_json(indent=2).encode())
            try:
                write_new(folder.record, record.model_dump_json(indent=2).encode())
            except FileExistsError:
                raise _exists(record.run_id) from None

    def resolve(self, ref: str) -> str:
        """Return the run id behind a full id, a unique prefix, `last` or `last~1`.

        `last` counts the runs that lists show. Raises RunNotFoundError with near matches.
        """
        if _RUN_ID.match(ref) and RunFolder(self._runs / ref).record.exists():
            return ref
        if back := _LAST.match(ref):
            newest_ids, position = self.run_ids(), int(back[1] or 0)
            if position < len(newest_ids):
                return newest_ids[position]
            raise _not_found(ref, f"there are {len(newest_ids)} runs", newest_ids[:5])
        run_ids = self.ids()
        matches = [run_id for run_id in run_ids if ref and run_id.startswith(ref)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise _not_found(ref, f"it begins {len(matches)} run ids", matches[:5])
        similar = difflib.get_close_matches(ref, run_ids, n=5, cutoff=0.5)
        raise _not_found(ref, "there is no run with this id", similar or run_ids[:5])

    def run_ids(self, *, hidden: bool = False) -> _list[str]:
        """Return all run ids, newest first; `hidden` includes the hidden runs."""
        return [row.run_id for row in self._rows(summaries=False) if hidden or not row.hidden]

    def folder(self, ref: str) -> RunFolder:
        return RunFolder(self._runs / self.resolve(ref))

    def record(self, ref: str) -> RunRecord:
        path = self.folder(ref).record
        try:
            with store_errors("read run record", path):
                return RunRecord.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise StoreError(
                f"Run record {path} is broken: {error.errors()[0]['msg']}",
                remedy=f"restore the file, or delete the folder {path.parent}",
            ) from error

    def add_attempt(self, run_id: str, attempt: Attempt) -> None:
        """Append an attempt. Raises RunStateError when its number is taken."""
        path = self.folder(run_id).attempts
        with store_errors("write", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                # Two people may press "retry" at once: one of them gets the number.
                fcntl.flock(fd, fcntl.LOCK_EX)
                _append_attempt(fd, attempt, path=path)
            finally:
                os.close(fd)

    def attempts(self, run_id: str) -> _list[Attempt]:
        path = self.folder(run_id).attempts
        with store_errors("read", path):
            return _parse_attempts(path.read_bytes() if path.exists() else b"")

    def list(
        self,
        summarise: Callable[[str], RunSummary | None],
        *,
        name: str | None = None,
        cluster: str | None = None,
        starred: bool | None = None,
        hidden: bool = False,
        limit: int | None = None,
    ) -> _list[RunSummary]:
        """Return summaries, newest first; `hidden` includes the hidden runs.

        `summarise` is called only for runs whose journal has grown since the last call;
        `views.summary.list_runs` passes the one that knows the kinds of run.
        """
        rows = [
            row
            for row in self._rows()
            if name in (None, row.name)
            and cluster in (None, row.cluster)
            and (hidden or not row.hidden)
            and starred in (None, self._notes(row.run_id).starred)
        ]
        summaries, changed = [], []
        for row in rows[:limit]:
            fingerprint = _fingerprint(RunFolder(self._runs / row.run_id))
            summary = _cached(row, fingerprint) or summarise(row.run_id)
            if summary is None:
                continue
            summaries.append(summary)
            if row.fingerprint != fingerprint:
                changed.append(_row_of(summary, fingerprint))
        self.index.put(changed)
        return summaries

    def cached_summaries(self, run_ids: Collection[str]) -> dict[str, RunSummary]:
        """Return the summaries of these runs that are still up to date; reads no journal."""
        summaries, rows = {}, self.index.rows()
        for row in (rows[run_id] for run_id in run_ids if run_id in rows):
            summary = _cached(row, self.fingerprint(row.run_id)) if row.summary else None
            if summary is not None:
                summaries[row.run_id] = summary
        return summaries

    def fingerprint(self, run_id: str) -> str:
        """Return a text that changes whenever the run's journal grows."""
        return _fingerprint(RunFolder(self._runs / run_id))

    def cache_summary(self, summary: RunSummary, *, fingerprint: str) -> None:
        """Cache a summary for `list`; `fingerprint` is from before the journal was read."""
        self.index.put([_row_of(summary, fingerprint)])

    def events(self, run_id: str) -> _list[AnyEvent]:
        """Return all events of the journal by time; each event once."""
        return Deduplicator().new(FolderTail(self.folder(run_id).journal).read())

    def view(self, run_id: str) -> TrainingView:
        """Read the whole journal; `kinds.registry.view_of` gives the view of the run's kind."""
        return TrainingView(self.events(run_id), kind=self.record(run_id).kind)

    def notes(self, ref: str) -> RunNotes:
        """Return what users have added to the run: title, star, note."""
        return read_notes(self.folder(ref))

    def _notes(self, run_id: str) -> RunNotes:
        return read_notes(RunFolder(self._runs / run_id))

    def annotate(self, ref: str, **changes: str | bool | Sequence[str]) -> RunNotes:
        """Change `title`, `starred`, `note`, `tags` or `colour`; the rest stays.

        Any process may.
        """
        return write_notes(self.folder(ref), **changes)

    def ids(self) -> _list[str]:
        """Return the ids of all runs, newest first; reads no journal."""
        return [row.run_id for row in self.listed()]

    def listed(self) -> _list[IndexRow]:
        """Return all runs, newest first: what a list needs of their records, no summaries."""
        return self._rows(summaries=False)

    def children(self, run_id: str) -> _list[str]:
        """Return runs that were re-submitted from a run, newest first."""
        children = []
        for child in self.ids():
            with suppress(StoreError, RunNotFoundError):  # Broken or deleted meanwhile.
                if self.record(child).parent == run_id:
                    children.append(child)
        return children

    def delete(self, run_id: str) -> None:
        """Remove the run's folder with its checkpoints and output."""
        run_id = self.resolve(run_id)
        folder = self._runs / run_id
        # Renamed first, so that no process sees half a run.
        trash = self._runs / f"{DELETED_PREFIX}{run_id}-{secrets.token_hex(2)}"
        with store_errors("delete", folder):
            folder.rename(trash)
            self.index.remove([run_id])
            with self._deleted.open("a", encoding="utf-8") as file:
                file.write(f"{run_id}\n")
            remove_tree(trash)

    def knows(self, run_id: str) -> bool:
        """Return whether the run is or was of this store: its cluster may still hold its files."""
        if RunFolder(self._runs / run_id).record.exists():
            return True
        try:
            return run_id in self._deleted.read_text(encoding="utf-8").splitlines()
        except OSError:
            return False

    def _rows(self, *, summaries: bool = True) -> _list[IndexRow]:
        """Return one row per run folder, newest first; updates the index."""
        with store_errors("read", self._runs):
            present = self._folders.names()
        listed = self._listed
        if not summaries and present == listed.keys():
            return list(listed.values())
        broken = {
            run_id for run_id, stamp in self._broken.items() if stamp == self._record_ns(run_id)
        }
        if summaries or present - listed.keys() - broken:
            listed = self.index.rows(summaries=summaries)
        self.index.remove(listed.keys() - present)
        rows = [listed[run_id] for run_id in present & listed.keys()]
        new = present - listed.keys() - broken
        added = [row for run_id in new if (row := self._read_row(run_id))]
        self.index.put(added)
        rows = sorted(rows + added, key=lambda row: (row.created_s, row.run_id), reverse=True)
        if not summaries:
            # What is in them without a summary never changes: the next call reads no database.
            self._listed = {row.run_id: row for row in rows}
        return rows

    def _read_row(self, run_id: str) -> IndexRow | None:
        written_ns = self._record_ns(run_id)
        try:
            return _row(self.record(run_id))
        except (StoreError, RunNotFoundError):
            self._broken[run_id] = written_ns  # Read again when it has been written again.
            return None

    def _record_ns(self, run_id: str) -> int:
        try:
            return RunFolder(self._runs / run_id).record.stat().st_mtime_ns
        except OSError:
            return 0


def remove_tree(folder: Path) -> None:
    """Delete a folder that another process may be deleting as well. Raises OSError."""

    def failed(_: object, __: str, error: BaseException) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=failed)
    else:
        shutil.rmtree(folder, onerror=lambda call, path, info: failed(call, path, info[1]))


def _row(record: RunRecord) -> IndexRow:
    return IndexRow(
        run_id=record.run_id,
        created_s=record.created_s,
        name=record.name,
        cluster=record.cluster,
        hidden=record.hidden,
    )


def _row_of(summary: RunSummary, fingerprint: str) -> IndexRow:
    return IndexRow(
        run_id=summary.run_id,
        created_s=summary.created_s,
        name=summary.name,
        cluster=summary.cluster,
        hidden=summary.hidden,
        fingerprint=fingerprint,
        summary=summary.model_dump_json(),
    )


def _cached(row: IndexRow, fingerprint: str) -> RunSummary | None:
    if row.fingerprint != fingerprint:
        return None
    try:
        return RunSummary.model_validate_json(row.summary)
    except ValidationError:
        return None  # Written by another version.


def _fingerprint(folder: RunFolder) -> str:
    """Return the sizes of all that a summary is made from: these files only ever grow."""
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder.journal)}
    except OSError:
        sizes = {}
    with suppress(OSError):
        sizes[folder.attempts.name] = folder.attempts.stat().st_size
    return " ".join(f"{name}:{size}" for name, size in sorted(sizes.items())) or "empty"


def _parse_attempts(data: bytes) -> list[Attempt]:
    attempts = []
    for line in data.split(b"\n"):
        try:
            attempts.append(Attempt.model_validate_json(line))
        except ValidationError:
            continue  # Empty, or cut short by a full disk: that attempt never started.
    return attempts


def _append_attempt(fd: int, attempt: Attempt, *, path: Path) -> None:
    data = path.read_bytes()
    if any(previous.number == attempt.number for previous in _parse_attempts(data)):
        raise RunStateError(
            f"Attempt {attempt.number} of run {path.parent.name} exists already.",
            remedy="wait for it, or try again with the next number",
        )
    line = attempt.model_dump_json().encode() + b"\n"
    if data and not data.endswith(b"\n"):
        line = b"\n" + line
    try:
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(fd, len(data))
        raise
    os.fsync(fd)


def _exists(run_id: str) -> StoreError:
    return StoreError(
        f"Run {run_id} exists already; a record is never overwritten.",
        remedy="submit again for a new run id, or retry the run for a new attempt",
    )


def _not_found(ref: str, reason: str, suggestions: list[str]) -> RunNotFoundError:
    remedy = (
        f"use one of: {', '.join(suggestions)}"
        if suggestions
        else "submit a run first: `llmops submit`"
    )
    return RunNotFoundError(f"Run {ref!r} not found: {reason}.", remedy=remedy)


# --- Whether a client still submits a run: it holds a lock that ends with its process ---
# Without it a run whose client was killed in the middle would wait for a time limit that is as
# long as the longest upload.


@contextmanager
def submitting(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run while it is submitted; take it before the run can be seen.

    Where there are no locks, or no space for the file, nothing is held and nothing is raised.
    """
    path = _path(home, run_id)
    lock = None
    with suppress(OSError):
        private_home(home)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another host that mounts this home may not see the lock.
        os.write(lock, socket.gethostname().encode())
    try:
        yield
    finally:
        # First the file: nobody may find it without its lock.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def was_abandoned(home: Path, run_id: str) -> bool:
    """Return whether the process that submitted the run is gone; False where that is not known."""
    try:
        lock = os.open(_path(home, run_id), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.read(lock, 256) == socket.gethostname().encode()
    except OSError:
        return False
    finally:
        os.close(lock)


def forget_abandoned(home: Path) -> None:
    """Remove the files of processes that are gone."""
    with suppress(OSError):
        for path in (home / "submitting").iterdir():
            if was_abandoned(home, path.name):
                with suppress(OSError):
                    path.unlink()


def _path(home: Path, run_id: str) -> Path:
    return home / "submitting" / run_id
