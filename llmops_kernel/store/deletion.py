"""A preview of what deleting a run would remove and keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from llmops_kernel.metrics.events import RunState
from llmops_kernel.store.store import RunStore


class DeletionPreview(BaseModel):
    """Files that deleting a run would remove and keep."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    state: RunState
    folder: str
    size_bytes: int
    num_files: int
    checkpoints: list[str]
    """Folders of checkpoints that would be removed."""
    outputs: list[str]
    """Results in the run's folder, which would be removed."""
    kept: list[str]
    """Results and checkpoints elsewhere, which are kept."""
    children: list[str]
    """Runs that were re-submitted from it; they are kept, and so is the code in the cache."""


def preview(store: RunStore, run_id: str) -> DeletionPreview:
    """Return what deleting a run would do. Raises RunNotFoundError."""
    run_id = store.resolve(run_id)
    root, view = store.folder(run_id).root, store.view(run_id)
    sizes = list(_sizes(root))
    paths = [e.path for e in view.checkpoints] + [e.path for e in view.outputs]
    return DeletionPreview(
        run_id=run_id,
        state=view.state,
        folder=str(root),
        size_bytes=sum(sizes),
        num_files=len(sizes),
        checkpoints=sorted(str(path) for path in (root / "checkpoints").glob("*")),
        outputs=[event.path for event in view.outputs if _is_below(event.path, root)],
        kept=sorted({path for path in paths if not _is_below(path, root)}),
        children=store.children(run_id),
    )


def folder_size(path: Path) -> int | None:
    """Return the bytes of a file or of all files below a folder; None when there is nothing."""
    if path.is_file():
        return path.stat().st_size
    return sum(_sizes(path)) if path.is_dir() else None


def _is_below(path: str, root: Path) -> bool:
    return "://" not in path and Path(path).is_relative_to(root)


def _sizes(root: Path) -> Iterator[int]:
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # Deleted meanwhile.
