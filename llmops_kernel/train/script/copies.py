"""Copies of a script's checkpoints: in the run's folder, and in the run storage's bucket."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmops_kernel.driver import checkpoint_folders as checkpoint
from llmops_kernel.driver import checkpoint_manifest as manifest
from llmops_kernel.driver.checkpoint_hashes import HashesLater, hashed_while
from llmops_kernel.driver.folders import run_folder
from llmops_kernel.driver.storage import Bucket, Stored, open_bucket
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.track.tracker import Kept
from llmops_kernel.train.checkpoints import view
from llmops_kernel.train.checkpoints.agreement import Chosen, not_fetched
from llmops_kernel.train.checkpoints.fetch import fetch

CONTENT = "content"
"""Name of a checkpoint's file in its folder, where the script wrote a file and no folder."""
_LOCK = ".lock"


class CheckpointCopies:
    """The checkpoints of one run, as a process on this node sees them."""

    def __init__(self, spec: RunSpec, *, workspace: Path) -> None:
        self._folder = run_folder(spec, workspace=workspace).checkpoints
        self._run_id = spec.run_id
        self._attempt = spec.attempt
        self._hashes = HashesLater()

    def keep(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        """Copy a checkpoint to where a retry finds it. Raises OSError and StoreError."""
        begun_s = time.perf_counter()
        kept = keep_copy(path, self._folder, step=step, keep=keep)
        bucket = open_bucket(self._run_id)
        if bucket is None:
            self._hashes.add(kept)
        return CheckpointEvent(
            step=step,
            path=str(kept) if bucket is None else _upload(bucket, kept, keep=keep),
            size_bytes=checkpoint.size_bytes(kept),
            duration_s=time.perf_counter() - begun_s,
        )

    def newest(self) -> Kept | None:
        """Return the newest complete checkpoint. Raises StoreError when the bucket is away."""
        path = self._newest()
        return None if path is None else _kept(path)

    def choose(self) -> Chosen | None:
        """Return the newest one for the other workers. Raises StoreError, OSError."""
        path = self._newest()
        if path is None:
            return None
        try:
            files = view.sizes(path)
        except ValueError as error:
            raise StoreError(
                f"{path.name} was changed while it was read: {error}", remedy="`llmops retry`"
            ) from error
        token = checkpoint.token(path) or ""
        return Chosen(path.name, _kept(path).step, token=token, sizes=files)

    def take(self, chosen: Chosen, *, rank: int, view_s: float) -> Kept:
        """Return the checkpoint that rank 0 chose.

        Raises StoreError if this worker sees another one there, or none, also after `view_s`.
        """
        path, bucket = self._folder / chosen.name, open_bucket(self._run_id)
        if bucket is not None:
            stored = Stored(f"checkpoints/{chosen.name}", chosen.step, chosen.token)
            if problem := self._fetch_chosen(bucket, stored, path):
                raise not_fetched(path, rank=rank, problem=problem)
            return _kept(path)
        problem = view.wait_for(path, chosen.sizes, view_s=view_s)
        if not problem:
            with _locked(self._folder):
                problem = "" if self._is_sound(path) else "the SHA-256 of a file differs"
        if problem:
            raise view.other_view(path, rank=rank, problem=problem)
        return _kept(path)

    def _fetch_chosen(self, bucket: Bucket, stored: Stored, path: Path) -> str:
        if stored not in bucket.complete():
            return "it is not there, or was written again"
        with _locked(self._folder):  # The workers of a node fetch it once.
            return fetch(bucket, stored, path)

    def _newest(self) -> Path | None:
        bucket = open_bucket(self._run_id)
        if bucket is None:
            return self._newest_here()
        # This node's own disk may have checkpoints that never reached the bucket.
        for stored in reversed(bucket.complete()):
            path = self._folder / stored.name.rpartition("/")[2]
            with _locked(self._folder):
                damage = fetch(bucket, stored, path)
            if not damage:
                return path
        return None

    def _newest_here(self) -> Path | None:
        if checkpoint.latest(self._folder) is None:
            return None
        with _locked(self._folder):
            while newest := checkpoint.latest(self._folder):
                if self._is_sound(newest.path):
                    return newest.path
                manifest.unmark(newest.path)
        return None

    def _is_sound(self, path: Path) -> bool:
        """Read the checkpoint once an attempt, not once a worker."""
        checked, name = path / manifest.CHECKED, f"{self._run_id}/{self._attempt}"
        with suppress(OSError):
            if checked.read_text() == name:
                return True
        is_sound = not manifest.hash_damage(path)
        if is_sound:
            with suppress(OSError):
                checked.write_text(name)
        return is_sound


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
    files, _ = hashed_while(path, lambda: bucket.put(path, name))
    bucket.mark_complete(name, token=token, files=files)
    checkpoint.mark_complete(path, token=token, files=files, has_other_copy=True)
    bucket.rotate(keep=max(1, keep))
    return bucket.url_of(name)


def _kept(path: Path) -> Kept:
    """Return the file or folder that the script wrote."""
    content = path / CONTENT
    files = sorted(content.iterdir()) if content.is_dir() else []
    return Kept(files[0] if files else path, checkpoint.step_of(path.name) or 0)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
