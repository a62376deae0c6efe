"""Copies of a script's checkpoints: in the run's folder, and in the run storage's bucket."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmops_kernel.driver import checkpoint_folders as checkpoint
from llmops_kernel.driver.folders import run_folder
from llmops_kernel.driver.storage import Bucket, Stored, open_bucket
from llmops_kernel.metrics.events import CheckpointEvent
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.track.tracker import Kept

CONTENT = "content"
"""Name of a checkpoint's file in its folder, where the script wrote a file and no folder."""
_LOCK = ".lock"


class CheckpointCopies:
    """The checkpoints of one run, as a process on this node sees them."""

    def __init__(self, spec: RunSpec, *, workspace: Path) -> None:
        self._folder = run_folder(spec, workspace=workspace).checkpoints
        self._run_id = spec.run_id

    def keep(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        """Copy a checkpoint to where a retry finds it. Raises OSError and StoreError."""
        begun_s = time.perf_counter()
        kept = keep_copy(path, self._folder, step=step, keep=keep)
        bucket = open_bucket(self._run_id)
        return CheckpointEvent(
            step=step,
            path=str(kept) if bucket is None else _upload(bucket, kept, keep=keep),
            size_bytes=checkpoint.size_bytes(kept),
            duration_s=time.perf_counter() - begun_s,
        )

    def newest(self) -> Kept | None:
        """Return the newest complete checkpoint. Raises StoreError when the bucket is away."""
        bucket = open_bucket(self._run_id)
        if bucket is None:
            newest = checkpoint.latest(self._folder)
            return Kept(_as_written(newest.path), newest.step) if newest else None
        # This node's own disk may have checkpoints that never reached the bucket.
        stored = bucket.newest()
        if stored is None:
            return None
        return Kept(_as_written(self._fetched(bucket, stored)), stored.step)

    def _fetched(self, bucket: Bucket, stored: Stored) -> Path:
        path = self._folder / stored.name.rpartition("/")[2]
        with _locked(self._folder):  # The workers of a node fetch it once.
            if checkpoint.token(path) != stored.token:
                shutil.rmtree(path, ignore_errors=True)
                bucket.fetch(stored.name, path)
                checkpoint.mark_complete(path, token=stored.token)
        return path


def keep_copy(path: Path, folder: Path, *, step: int, keep: int) -> Path:
    """Copy a checkpoint into the run's folder, mark it complete and delete the oldest.

    A copy and no link: a script may write the next one over the same file. Raises OSError.
    """
    target = folder / f"checkpoint-{step}"
    if path.resolve() != target.resolve():
        shutil.rmtree(target, ignore_errors=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            (target / CONTENT).mkdir(parents=True)
            shutil.copy2(path, target / CONTENT / path.name)
    checkpoint.mark_complete(target)
    checkpoint.rotate(folder, keep=max(1, keep))
    return target


def _upload(bucket: Bucket, path: Path, *, keep: int) -> str:
    """Store a copy in the bucket and return its URL there."""
    name, token = f"checkpoints/{path.name}", secrets.token_hex(8)
    bucket.put(path, name)
    bucket.mark_complete(name, token=token)
    checkpoint.mark_complete(path, token=token)
    bucket.rotate(keep=max(1, keep))
    return bucket.url_of(name)


def _as_written(path: Path) -> Path:
    """Return the file or folder that the script wrote."""
    content = path / CONTENT
    files = sorted(content.iterdir()) if content.is_dir() else []
    return files[0] if files else path


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
