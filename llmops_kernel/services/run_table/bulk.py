"""Actions on many runs at once: what deleting them would lose, delete, stop, tag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmops_kernel.errors import LLMOpsError, RunStateError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import RunAccess
from llmops_kernel.store.deletion import folder_size
from llmops_kernel.store.record.notes import RunNotes, change_tags
from llmops_kernel.store.store import RunStore

Report = Callable[[str], None]


@dataclass(frozen=True)
class Losses:
    """What deleting these runs would remove."""

    num_runs: int
    size_bytes: int
    num_checkpoints: int
    num_with_output: int
    starred: tuple[str, ...]
    missing: tuple[str, ...]
    """Deleted by somebody else."""


def losses(store: RunStore, run_ids: Sequence[str]) -> Losses:
    """Add up what the folders of these runs hold; a run that is gone is named."""
    present, missing, starred = [], [], []
    size = checkpoints = outputs = 0
    for run_id in dict.fromkeys(run_ids):
        try:
            folder = store.folder(run_id)
            starred += [run_id] if store.notes(run_id).starred else []
        except LLMOpsError:
            missing.append(run_id)
            continue
        present.append(run_id)
        size += folder_size(folder.root) or 0
        checkpoints += sum(1 for _ in folder.checkpoints.glob("*"))
        outputs += int(any(folder.output.glob("*")))
    return Losses(len(present), size, checkpoints, outputs, tuple(starred), tuple(missing))


def delete(backend: Backend, run_ids: Sequence[str], report: Report) -> list[str]:
    """Delete runs that have ended; return the ids. Raises RunStateError naming the others."""
    return _each(run_ids, lambda run_id: RunAccess(backend, run_id).delete(), "Deleted", report)


def stop(backend: Backend, run_ids: Sequence[str], report: Report) -> list[str]:
    """Request a stop of each; return the ids. Raises RunStateError naming those that failed."""
    return _each(run_ids, lambda run_id: RunAccess(backend, run_id).stop(), "Stopping", report)


def _each(
    run_ids: Sequence[str], act: Callable[[str], object], word: str, report: Report
) -> list[str]:
    done, failed = [], []
    for number, run_id in enumerate(run_ids, start=1):
        try:
            act(run_id)
            done.append(run_id)
        except LLMOpsError as error:
            failed.append(error)
        report(f"{word} {number} of {len(run_ids)}")
    if failed:
        raise RunStateError(
            f"{len(failed)} of {len(run_ids)} runs were left as they are. The first reason:"
            f" {failed[0].message}",
            remedy=failed[0].remedy,
        )
    return done


def tag(
    store: RunStore, run_ids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]
) -> list[RunNotes]:
    """Change the tags of each run. Raises StoreError, RunNotFoundError."""
    return [change_tags(store.folder(run_id), add=add, remove=remove) for run_id in run_ids]
