"""Copies of the journal in the run's storage: written by this attempt, read by the next."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from llmops_kernel.driver.storage import open_bucket, storage_folder
from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record.spec import RunSpec

RECALL_S = 10.0
"""How long a driver that has ended waits until earlier attempts' journals are copied."""


def recall(spec: RunSpec, target: Path | None) -> None:
    """Copy journals of earlier attempts, whose nodes are gone, to where the client can read them.

    That is `target`. Followers add the lines that they had not fetched before the cluster was lost.
    """
    if target is None or spec.attempt < 2:
        return
    with suppress(StoreError, OSError):
        for name, data in _stored(spec).items():
            path = target / name
            if _attempt(name) < spec.attempt and not path.exists():
                target.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".part")
                scratch.write_bytes(data)
                scratch.rename(path)


def store(spec: RunSpec, files: list[Path]) -> None:
    """Copy the driver's journal at its end; the workers have copied theirs."""
    with suppress(StoreError, OSError):
        if bucket := open_bucket(spec.run_id):
            bucket.put_files([file for file in files if file.exists()], "journal")


def _stored(spec: RunSpec) -> dict[str, bytes]:
    if bucket := open_bucket(spec.run_id):
        return bucket.journal()
    shared = storage_folder(spec.run_id)
    if shared is None:
        return {}
    return {path.name: path.read_bytes() for path in RunFolder(shared).journal.glob("*.jsonl")}


def _attempt(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0
