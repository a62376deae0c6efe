"""The folders of a script's run on this node; needs no connection to Ray."""

from __future__ import annotations

import hashlib
from pathlib import Path

from llmops_kernel.driver.storage import folder_on_node, storage_folder
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record.spec import RunSpec, shares_run_folder

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
    session, found, _ = str(workspace).partition(_WORKING_DIR)
    return Path(session) / "logs" if found else None


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
    """Open a stream of this attempt's journal for writing."""
    return JournalWriter(
        journal_folders(spec, logs=logs), stream=f"{spec.attempt}-{stream}", attempt=spec.attempt
    )
