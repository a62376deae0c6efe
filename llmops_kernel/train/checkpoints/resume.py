"""Finds the checkpoint that a run resumes from: rank 0 chooses, and every rank checks it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.storage import Bucket, Stored, clear
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.train.checkpoints import agreement
from llmops_kernel.train.checkpoints.agreement import fetch
from llmops_kernel.train.collectives import from_main, gather
from llmops_kernel.train.context import WorkerContext


@dataclass(frozen=True)
class _Choice:
    """The checkpoint that rank 0 chose, and the files that it saw."""

    name: str = ""
    sizes: agreement.Sizes = None
    error: str = ""


@dataclass(frozen=True)
class _Check:
    """The check of one rank. `error`: the storage failed; `damage`: this checkpoint is unusable."""

    error: str = ""
    damage: str = ""


def resume_path(context: WorkerContext, *, view_s: float = agreement.VIEW_S) -> Path | None:
    """Return the folder of the newest complete checkpoint, or None. Call it on all ranks.

    `view_s`: how long a rank waits until its view of a shared folder has the checkpoint. Raises
    StoreError on all ranks.
    """
    folder = context.folder / "checkpoints"
    if not context.resume:
        return None
    if context.bucket is not None:
        return _fetched(context, context.bucket, folder)
    return _shared(context, folder, view_s=view_s)


def _shared(context: WorkerContext, folder: Path, *, view_s: float) -> Path | None:
    while True:
        choice = from_main(_choose(context, folder) if context.is_main else _Choice())
        if choice.error:
            raise _not_resumed(choice.error)
        if not choice.name:
            return None
        path = folder / choice.name
        problems = gather(agreement.wait_for(path, choice.sizes, view_s=view_s))
        if any(problems):
            rank, problem = next((rank, text) for rank, text in enumerate(problems) if text)
            raise agreement.other_view(path, rank=rank, problem=problem)
        # Each rank reads a share: together about what loading the checkpoint reads anyway.
        damages = gather(
            checkpoint.hash_damage(path, share=context.rank, num_shares=context.world_size)
        )
        if not any(damages):
            return path
        error = ""
        if context.is_main:
            error = _leave_out(context, path, next(filter(None, damages)))
        if error := from_main(error):
            raise _not_resumed(error)


def _choose(context: WorkerContext, folder: Path) -> _Choice:
    """Return rank 0's choice; newer damaged ones are reported and no longer count."""
    try:
        for candidate in reversed(checkpoint.marked(folder)):
            damage = checkpoint.size_damage(candidate.path)
            if not damage:
                return _Choice(candidate.path.name, agreement.sizes(candidate.path))
            if error := _leave_out(context, candidate.path, damage):
                return _Choice(error=error)
    except (OSError, ValueError) as error:
        return _Choice(error=str(error))
    return _Choice()


def _leave_out(context: WorkerContext, path: Path, damage: str) -> str:
    """Report a damaged checkpoint and unmark it; return the error if that is not possible."""
    context.emit(_damaged(path.name, damage))
    try:
        checkpoint.unmark(path)
    except OSError as error:
        return f"{path.name} is damaged ({damage}) and cannot be changed: {error}"
    return ""


def _damaged(name: str, damage: str) -> WarningEvent:
    return WarningEvent(
        message=f"{name} is damaged and is not resumed from: {damage}.",
        remedy="the run resumes from the complete checkpoint before it, or starts from the"
        " beginning if there is none; check the storage it was on",
    )


def _fetched(context: WorkerContext, bucket: Bucket, folder: Path) -> Path | None:
    """Fetch from the bucket: a node's own disk may have checkpoints that others never finished."""
    stored, error = from_main(_listed(bucket) if context.is_main else ([], None))
    if error is not None:
        raise error
    for newest in reversed(stored):
        path = folder / newest.name.rpartition("/")[2]
        is_fetching = context.local_rank == 0
        checks = gather(_fetch_here(bucket, newest, path) if is_fetching else _Check())
        if errors := [check.error for check in checks if check.error]:
            raise _not_resumed(errors[0])
        damages = [check.damage for check in checks if check.damage]
        if not damages:
            return path
        if context.is_main:
            context.emit(_damaged(path.name, damages[0]))
            bucket.unmark(newest.name)
    if context.local_rank == 0:
        clear(folder)
    gather(None)
    return None


def _listed(bucket: Bucket) -> tuple[list[Stored], StoreError | None]:
    """Return the complete checkpoints; an error, too, where there are none and none can be."""
    try:
        stored = bucket.complete()
        if not stored:
            bucket.prove()
    except StoreError as error:
        remedy = f"{error.remedy}, then `llmops retry`"
        return [], StoreError(f"The run storage does not work: {error.message}", remedy=remedy)
    return stored, None


def _fetch_here(bucket: Bucket, stored: Stored, path: Path) -> _Check:
    """Fetch the checkpoint. It never raises: the other ranks wait."""
    try:
        clear(path.parent, but=path)
        return _Check(damage=fetch(bucket, stored, path))
    except (StoreError, OSError) as error:
        return _Check(error=error.message if isinstance(error, StoreError) else str(error))


def _not_resumed(error: str) -> StoreError:
    return StoreError(
        f"The run cannot resume from its stored checkpoint: {error}",
        remedy="`llmops retry` when the storage is available; `llmops resubmit` starts from the"
        " beginning",
    )
