"""Stores checkpoints where the next worker group, perhaps on other nodes, finds them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.checkpoint import HashesLater, hashed_while
from llmops_kernel.driver.storage import Bucket
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent, WarningEvent
from llmops_kernel.train.collectives import barrier, from_main, gather
from llmops_kernel.train.context import WorkerContext

_HASHES = HashesLater()
_HASHES_LIMIT_S = 60.0


@dataclass(frozen=True)
class _RankResult:
    """The result of one rank in something that all ranks do together."""

    error: str = ""
    size_bytes: int = 0
    files: dict[str, checkpoint.Entry] = field(default_factory=dict)


def complete_checkpoint(
    context: WorkerContext, path: Path, *, step: int, num_kept: int
) -> CheckpointEvent | WarningEvent:
    """Mark a checkpoint complete and delete old ones. Call it on all ranks, each having written.

    Returns a WarningEvent if the checkpoint could not be stored in the bucket. Raises StoreError if
    the disk does not take it.
    """
    barrier()
    if context.bucket is not None:
        return _keep_in_bucket(context, context.bucket, path, step=step, num_kept=num_kept)
    # Each node: on a network file system an fsync reaches what was written on the same node.
    _all_or_none(path, gather(_once_a_node(context, lambda: _synced(path))))
    marked = _RankResult()
    if context.is_main:
        marked = _tried(lambda: _marked(path))
    _all_or_none(path, [from_main(marked)])
    if context.is_main:
        _HASHES.add(path)
        checkpoint.rotate(path.parent, keep=num_kept)
        return CheckpointEvent(step=step, path=str(path), size_bytes=checkpoint.size_bytes(path))
    return CheckpointEvent(step=step, path=str(path))


def wait_for_hashes() -> None:
    """Wait until the newest checkpoint's hashes are written, at the end of a training."""
    _HASHES.wait(limit_s=_HASHES_LIMIT_S)


def _synced(path: Path) -> _RankResult:
    checkpoint.sync(path)
    return _RankResult()


def _marked(path: Path) -> _RankResult:
    checkpoint.mark_complete(path)
    return _RankResult()


def _all_or_none(path: Path, parts: Iterable[_RankResult]) -> None:
    if errors := [part.error for part in parts if part.error]:
        raise StoreError(
            f"{path.name} could not be written to {path.parent}: {errors[0]}",
            remedy="check the disk of the run's folder (free space, quota), then `llmops retry`:"
            " the run resumes from the checkpoint before",
        )


def _keep_in_bucket(
    context: WorkerContext, bucket: Bucket, path: Path, *, step: int, num_kept: int
) -> CheckpointEvent | WarningEvent:
    """Upload what the workers of each node wrote; training continues if that fails."""
    name = f"checkpoints/{path.name}"
    token = from_main(secrets.token_hex(8))
    parts = gather(_once_a_node(context, lambda: _uploaded(bucket, path, name)))
    error = next((part.error for part in parts if part.error), "")
    files = _merged(part.files for part in parts)
    if not error:
        marked = _RankResult()
        if context.is_main:
            marked = _tried(lambda: _complete(bucket, name, token, files, num_kept))
        error = from_main(marked).error
    if error:
        return WarningEvent(
            message=f"The checkpoint of step {step} could not be stored: {error}",
            remedy="training continues; a retry resumes from the last checkpoint that is stored",
        )
    if context.local_rank == 0:
        checkpoint.mark_complete(path, token=token, has_other_copy=True)
        checkpoint.rotate(path.parent, keep=num_kept)
    store_journal(context)
    size_bytes = sum(part.size_bytes for part in parts)
    return CheckpointEvent(step=step, path=bucket.url_of(name), size_bytes=size_bytes)


def _uploaded(bucket: Bucket, path: Path, name: str) -> _RankResult:
    files, size_bytes = hashed_while(path, lambda: bucket.put(path, name))
    return _RankResult(size_bytes=size_bytes, files=files)


def _merged(parts: Iterable[dict[str, checkpoint.Entry]]) -> dict[str, checkpoint.Entry]:
    """Return all nodes' files. One that two nodes wrote differently is left out: the bucket has
    the one that came last, whichever that was.
    """
    entries: dict[str, checkpoint.Entry] = {}
    unclear = set()
    for name, entry in (item for files in parts for item in files.items()):
        if entries.setdefault(name, entry) != entry:
            unclear.add(name)
    return {name: entry for name, entry in entries.items() if name not in unclear}


def _complete(
    bucket: Bucket, name: str, token: str, files: checkpoint.Manifest, num_kept: int
) -> _RankResult:
    bucket.mark_complete(name, token=token, files=files)
    bucket.rotate(keep=num_kept)
    return _RankResult()


def store_journal(context: WorkerContext) -> None:
    """Copy rank 0's journal to the bucket; an error is ignored."""
    if context.bucket is not None and context.journal is not None:
        with suppress(StoreError, OSError):
            context.bucket.put_files(context.journal.paths[:1], "journal")


def _once_a_node(context: WorkerContext, work: Callable[[], _RankResult]) -> _RankResult:
    return _tried(work) if context.local_rank == 0 else _RankResult()


def _tried(work: Callable[[], _RankResult]) -> _RankResult:
    """Return the result or the error; never raise, because the other ranks wait."""
    try:
        return work()
    except (StoreError, OSError) as error:
        return _RankResult(error=error.message if isinstance(error, StoreError) else str(error))
