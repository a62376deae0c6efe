"""Stores checkpoints where the next worker group, perhaps on other nodes, finds them."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.driver import checkpoint_folders as checkpoint
from llmops_kernel.driver.storage import Bucket, Stored, clear
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent, WarningEvent
from llmops_kernel.train.collectives import barrier, from_main, gather
from llmops_kernel.train.context import WorkerContext


@dataclass(frozen=True)
class _Part:
    """One rank's result of something that all ranks do together."""

    error: str = ""
    size_bytes: int = 0


def resume_path(context: WorkerContext) -> Path | None:
    """Return the folder of the newest complete checkpoint, or None. Call it on all ranks.

    Raises StoreError.
    """
    folder = context.folder / "checkpoints"
    if not context.resume:
        return None
    if context.bucket is None:
        found = checkpoint.latest(folder)
        return found.path if found else None
    return _fetched(context, context.bucket, folder)


def _fetched(context: WorkerContext, bucket: Bucket, folder: Path) -> Path | None:
    """Fetch from the bucket: a node's own disk may have checkpoints that others never finished."""
    newest: Stored | None = None
    error = ""
    if context.is_main:
        try:
            newest = bucket.newest()
        except StoreError as raised:
            error = raised.message
    newest, error = from_main((newest, error))
    if error:
        raise _not_resumed(error)
    path = folder / newest.name.rpartition("/")[2] if newest else None

    def fetch() -> int:
        clear(folder, but=path)
        if newest is None or path is None:
            return 0
        is_same = checkpoint.token(path) == newest.token
        if not is_same:
            shutil.rmtree(path, ignore_errors=True)
        bucket.fetch(newest.name, path, overwrite=not is_same)
        checkpoint.mark_complete(path, token=newest.token)
        return 0

    if errors := [part.error for part in gather(_once_a_node(context, fetch)) if part.error]:
        raise _not_resumed(errors[0])
    return path


def complete_checkpoint(
    context: WorkerContext, path: Path, *, step: int, num_kept: int
) -> CheckpointEvent | WarningEvent:
    """Mark a checkpoint complete and delete old ones. Call it on all ranks, each having written.

    Returns a WarningEvent if the checkpoint could not be stored in the bucket.
    """
    barrier()
    if context.bucket is not None:
        return _keep_in_bucket(context, context.bucket, path, step=step, num_kept=num_kept)
    if context.is_main:
        checkpoint.mark_complete(path)
        checkpoint.rotate(path.parent, keep=num_kept)
        return CheckpointEvent(step=step, path=str(path), size_bytes=checkpoint.size_bytes(path))
    return CheckpointEvent(step=step, path=str(path))


def _keep_in_bucket(
    context: WorkerContext, bucket: Bucket, path: Path, *, step: int, num_kept: int
) -> CheckpointEvent | WarningEvent:
    """Upload what the workers of each node wrote; training continues if that fails."""
    name = f"checkpoints/{path.name}"
    token = from_main(secrets.token_hex(8))
    parts = gather(_once_a_node(context, lambda: bucket.put(path, name)))
    error = next((part.error for part in parts if part.error), "")
    if not error:
        marked = _Part()
        if context.is_main:
            marked = _tried(lambda: _complete(bucket, name, token, num_kept))
        error = from_main(marked).error
    if error:
        return WarningEvent(
            message=f"The checkpoint of step {step} could not be stored: {error}",
            remedy="training continues; a retry resumes from the last checkpoint that is stored",
        )
    if context.local_rank == 0:
        checkpoint.mark_complete(path, token=token)
        checkpoint.rotate(path.parent, keep=num_kept)
    store_journal(context)
    size_bytes = sum(part.size_bytes for part in parts)
    return CheckpointEvent(step=step, path=bucket.url_of(name), size_bytes=size_bytes)


def _complete(bucket: Bucket, name: str, token: str, num_kept: int) -> int:
    bucket.mark_complete(name, token=token)
    bucket.rotate(keep=num_kept)
    return 0


def store_journal(context: WorkerContext) -> None:
    """Copy rank 0's journal to the bucket; an error is ignored."""
    if context.bucket is not None and context.journal is not None:
        with suppress(StoreError, OSError):
            context.bucket.put_files(context.journal.paths[:1], "journal")


def _once_a_node(context: WorkerContext, work: Callable[[], int]) -> _Part:
    return _tried(work) if context.local_rank == 0 else _Part()


def _tried(work: Callable[[], int]) -> _Part:
    """Return the result or the error; never raise, because the other ranks wait."""
    try:
        return _Part(size_bytes=work())
    except (StoreError, OSError) as error:
        return _Part(error=error.message if isinstance(error, StoreError) else str(error))


def _not_resumed(error: str) -> StoreError:
    return StoreError(
        f"The run cannot resume from its stored checkpoint: {error}",
        remedy="`llmops retry` when the storage is available; `llmops resubmit` starts from the"
        " beginning",
    )
