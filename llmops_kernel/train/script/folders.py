"""The folders of a script's run on this node; needs no connection to Ray."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.checkpoints.storage import storage_folder

_WORKING_DIR = "/runtime_resources/working_dir_files/"
"""Below the session's folder, where Ray unpacks a job's working_dir."""


def shares_run_folder(spec: RunSpec) -> bool:
    """Return True when this node sees the client's run folder: the record in it proves it."""
    try:
        record = json.loads(RunFolder(Path(spec.run_root)).record.read_text())
    except (OSError, ValueError):
        return False
    return bool(record.get("run_id") == spec.run_id)


def run_folder(spec: RunSpec) -> RunFolder:
    """Return the storage's folder, else the client's where it is shared, else a local one."""
    shared = storage_folder(spec.run_id)
    if shared is not None:
        return RunFolder(shared)
    if shares_run_folder(spec):
        return RunFolder(Path(spec.run_root))
    return RunFolder(Path(tempfile.gettempdir()) / "llmops-runs" / spec.run_id)


def ray_logs(workspace: Path) -> Path | None:
    """Return Ray's log folder of this node, from where the job's workspace is."""
    session, found, _ = str(workspace).partition(_WORKING_DIR)
    return Path(session) / "logs" if found else None


def journal_folders(spec: RunSpec, *, workspace: Path) -> list[Path]:
    """Return where a stream is written: shared folders, and what the dashboard can show."""
    folders = [RunFolder(Path(spec.run_root)).journal] if shares_run_folder(spec) else []
    stored = storage_folder(spec.run_id)
    if stored is not None:
        folders.append(RunFolder(stored).journal)
    logs = ray_logs(workspace)
    return folders if logs is None else [*folders, logs / "llmops" / spec.run_id]


def open_journal(spec: RunSpec, stream: str, *, workspace: Path) -> JournalWriter:
    return JournalWriter(
        journal_folders(spec, workspace=workspace),
        stream=f"{spec.attempt}-{stream}",
        attempt=spec.attempt,
    )
