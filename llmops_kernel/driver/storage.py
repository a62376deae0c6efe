"""The run storage of the cluster template: a folder that all nodes see, or a bucket."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.checkpoint import MANIFEST, MARKER, PART, step_of
from llmops_kernel.driver.run_metrics import RunMetrics
from llmops_kernel.errors import LLMOpsError, StoreError
from llmops_kernel.store.files import own_temp_folder
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR, RunFolder
from llmops_kernel.store.record import RunSpec, shares_run_folder
from llmops_kernel.tables.files import open_url

_PROOF: Final = ".llmops-run"
_THREADS: Final = 8
_OWN_RUNS: Final = "llmops-runs"
_FOLDERS_NEED_MAKING: Final = frozenset({"file", "local", "sftp", "ssh", "smb", "hdfs"})


def run_storage() -> str | None:
    """Return the folder or URL; None if runs are stored on the nodes only."""
    return os.environ.get(RUN_STORAGE_ENV_VAR, "").rstrip("/") or None


def storage_folder(run_id: str) -> Path | None:
    """Return the run's folder that all workers see, or None."""
    storage = run_storage()
    return Path(storage) / run_id if storage and "://" not in storage else None


def folder_on_node(spec: RunSpec, *, node: Callable[[], str]) -> RunFolder:
    """Return the run's folder: of the cluster's storage, else the client's if this node sees it,
    else one on this node. `node` returns a name of the node.
    """
    shared = storage_folder(spec.run_id)
    if shared is not None:
        return RunFolder(shared)
    if run_storage() is not None:
        # One per node, also for two nodes that are pods on one host: they share only the bucket.
        return RunFolder(own_temp_folder(_OWN_RUNS) / f"{spec.run_id}-{node()}")
    if shares_run_folder(spec):
        return RunFolder(Path(spec.run_root))
    return RunFolder(own_temp_folder(_OWN_RUNS) / spec.run_id)


def open_bucket(run_id: str) -> Bucket | None:
    """Return the run's bucket, or None. Raises StoreError if its package is not installed."""
    storage = run_storage()
    return Bucket(f"{storage}/{run_id}") if storage and "://" in storage else None


@dataclass(frozen=True)
class Stored:
    """A complete checkpoint in a bucket."""

    name: str
    step: int
    token: str
    """Identifies one writing: parts of another writing do not belong to it."""


class Bucket:
    """The files of a run in a bucket. Each method raises StoreError."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._files, self._root = open_url(url)
        except LLMOpsError as error:
            raise StoreError(
                f"The run storage {error.message}",
                remedy=f"{error.remedy}, or correct storage.runs in the template",
            ) from error
        self._makes_folders = url.partition("://")[0] in _FOLDERS_NEED_MAKING

    def __repr__(self) -> str:
        return f"Bucket({self.url!r})"

    def url_of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def prove(self) -> None:
        """Write an empty object, so that a run does not find out at its end that none can be."""
        self._write(_PROOF, b"")

    def put(self, folder: Path, name: str) -> int:
        """Upload a folder without markers and half files; return its bytes."""
        files = checkpoint.content(folder)
        pairs = [(file, f"{name}/{file.relative_to(folder).as_posix()}") for file in files]
        self._each(pairs)
        return sum(file.stat().st_size for file in files)

    def put_files(self, files: Iterable[Path], name: str) -> None:
        """Upload files below `name`."""
        self._each([(file, f"{name}/{file.name}") for file in files])

    def _each(self, pairs: list[tuple[Path, str]]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(lambda pair: self._put_one(*pair), pairs):
                pass

    def _put_one(self, file: Path, name: str) -> None:
        target = self._path(name)
        try:
            self._make_folder_of(target)
            self._files.put_file(str(file), target)
        except Exception as error:  # Each kind of bucket has errors of its own.
            raise self._failed("written", name, error) from error

    def fetch(self, name: str, folder: Path, *, overwrite: bool = True) -> None:
        """Download a folder; with `overwrite=False` only files that `folder` does not have."""
        for path in self._list(name):
            target = folder / PurePosixPath(path).relative_to(self._path(name))
            if target.name in (MARKER, MANIFEST) or (target.exists() and not overwrite):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = target.with_name(f".{target.name}{PART}")
            try:
                self._files.get_file(path, str(scratch))
            except Exception as error:
                raise self._failed("read", path, error) from error
            scratch.rename(target)

    def mark_complete(
        self, name: str, *, token: str, files: checkpoint.Manifest | None = None
    ) -> None:
        """Mark a checkpoint complete: one object appears at once or not at all.

        `files`: what it consists of; a fetch is checked against it.
        """
        if files is not None:
            self._write(f"{name}/{MANIFEST}", checkpoint.dumps(files).encode())
        self._write(f"{name}/{MARKER}", token.encode())

    def manifest(self, name: str) -> dict[str, checkpoint.Entry] | None:
        """Return what a checkpoint consists of; None: one of an earlier version.

        Raises ValueError if that was damaged.
        """
        path = self._path(f"{name}/{MANIFEST}")
        return checkpoint.loads(self._read(path).decode()) if path in self._list(name) else None

    def unmark(self, name: str) -> None:
        """Make a checkpoint an interrupted one; an error is ignored."""
        with suppress(Exception):  # It is found to be damaged again then.
            self._files.rm_file(self._path(f"{name}/{MARKER}"))

    def complete(self) -> list[Stored]:
        """Return the complete checkpoints, oldest first."""
        marked = [PurePosixPath(path) for path in self._list("checkpoints")]
        stored_checkpoints = []
        for path in marked:
            step = step_of(path.parent.name)
            if path.name == MARKER and step is not None:
                token = self._read(str(path)).decode(errors="replace").strip()
                stored_checkpoints.append(Stored(f"checkpoints/{path.parent.name}", step, token))
        return sorted(stored_checkpoints, key=lambda stored: stored.step)

    def newest(self) -> Stored | None:
        checkpoints = self.complete()
        return checkpoints[-1] if checkpoints else None

    def rotate(self, *, keep: int) -> None:
        """Delete all complete checkpoints but the newest `keep`, each with its marker first."""
        for stored in self.complete()[:-keep]:
            with suppress(Exception):  # What cannot be deleted only takes up space.
                self._files.rm_file(self._path(f"{stored.name}/{MARKER}"))
                self._files.rm(self._path(stored.name), recursive=True)

    def journal(self) -> dict[str, bytes]:
        """Return the journal streams stored here, by file name."""
        return {PurePosixPath(path).name: self._read(path) for path in self._list("journal")}

    def _list(self, name: str) -> list[str]:
        try:
            self._files.invalidate_cache()
            return sorted(self._files.find(self._path(name)))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._failed("listed", name, error) from error

    def _write(self, name: str, data: bytes) -> None:
        target = self._path(name)
        try:
            self._make_folder_of(target)
            self._files.pipe_file(target, data)
        except Exception as error:
            raise self._failed("written", name, error) from error

    def _make_folder_of(self, target: str) -> None:
        if self._makes_folders:
            self._files.makedirs(str(PurePosixPath(target).parent), exist_ok=True)

    def _read(self, path: str) -> bytes:
        try:
            data: bytes = self._files.cat_file(path)
        except Exception as error:
            raise self._failed("read", path, error) from error
        return data

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _failed(self, action: str, name: str, error: Any) -> StoreError:
        text = (str(error).strip().splitlines() or [""])[0]
        return StoreError(
            f"{name} at {self.url} cannot be {action}: {type(error).__name__}: {text}",
            remedy="check storage.runs and the pods' credentials for it (secrets in the template)",
        )


def clear(folder: Path, *, but: Path | None = None) -> None:
    """Delete what an earlier worker group left in this node's folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path != but:
            shutil.rmtree(path, ignore_errors=True)


# --- Folders of a script's run on this node; need no connection to Ray ---


_WORKING_DIR = "/runtime_resources/working_dir_files/"
"""Below the session's folder, where Ray unpacks a job's working_dir."""


def run_folder(spec: RunSpec, *, workspace: Path | None = None) -> RunFolder:
    """Return the run's folder as this node sees it; `workspace`: of the job, the current folder."""
    return folder_on_node(spec, node=lambda: _node(workspace or Path.cwd()))


def _node(workspace: Path) -> str:
    """Return a name of this node: Ray unpacks the workspace in a folder of the node's own."""
    session = ray_logs(workspace)
    return hashlib.sha256(str(session or workspace).encode()).hexdigest()[:8]


def ray_logs(workspace: Path) -> Path | None:
    """Return Ray's log folder of this node, from where the job's workspace is."""
    session, separator, _ = str(workspace).partition(_WORKING_DIR)
    return Path(session) / "logs" if separator else None


def journal_folders(spec: RunSpec, *, logs: Path | None) -> list[Path]:
    """Return where a stream is written: shared folders, and what the dashboard can show.

    `logs`: Ray's log folder of this node.
    """
    folders = [RunFolder(Path(spec.run_root)).journal] if shares_run_folder(spec) else []
    stored = storage_folder(spec.run_id)
    if stored is not None:
        folders.append(RunFolder(stored).journal)
    visible = visible_journal(spec, logs=logs)
    return folders if visible is None else [*folders, visible]


def visible_journal(spec: RunSpec, *, logs: Path | None) -> Path | None:
    """Return the folder on this node whose files can be read through the dashboard."""
    return None if logs is None else logs / "llmops" / spec.run_id


def offers_to_clients(spec: RunSpec, *, logs: Path | None) -> Path | None:
    """Return `visible_journal` unless this node writes to the client's own run folder.

    Also for a run whose storage outlives the cluster: the client may not reach that.
    """
    return None if shares_run_folder(spec) else visible_journal(spec, logs=logs)


def open_journal(spec: RunSpec, stream: str, *, logs: Path | None) -> JournalWriter:
    """Open a stream of this attempt's journal for writing, which Ray's metrics follow."""
    return JournalWriter(
        journal_folders(spec, logs=logs),
        stream=f"{spec.attempt}-{stream}",
        attempt=spec.attempt,
        follow=RunMetrics(spec).take,
    )
