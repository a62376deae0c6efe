"""What deleting a run would remove, and files of a home folder that nothing needs any more."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.metrics.events import RunState
from llmops_kernel.store.files import store_errors
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.store import DELETED_PREFIX, RunStore, forget_abandoned, remove_tree

_DAY_S: Final = 24 * 3600.0
# A submission builds its packages before the run exists, and sets their time when it uses them.
PACKAGE_AGE_S: Final = 7 * _DAY_S
_LEFTOVER_AGE_S: Final = _DAY_S


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """A file or folder that can be removed."""

    path: Path
    reason: str
    size_bytes: int
    num_files: int
    unless_used_after_s: float | None = None
    """It is kept if its modification time is later now: a submission is using it."""


def find(store: RunStore, *, now_s: float | None = None) -> list[Garbage]:
    """Return what can be removed, by path. Raises StoreError if the home cannot be read."""
    now_s = time.time() if now_s is None else now_s
    with store_errors("read", store.root):
        items = [*killed_deletes(store.root), *_half_runs(store, now_s), *_packages(store, now_s)]
    return sorted(items, key=lambda item: item.path)


def killed_deletes(home: Path) -> Iterator[Garbage]:
    """Return what is left of runs and clusters whose deletion did not end."""
    for kind in ("runs", "clusters"):
        for path in (home / kind).glob(f"{DELETED_PREFIX}*"):
            yield _garbage(path, f"a deletion of one of the {kind} was interrupted")


def remove(garbage: Garbage) -> bool:
    """Remove it; False if it is in use again, or gone. Raises StoreError."""
    path, limit_s = garbage.path, garbage.unless_used_after_s
    with store_errors("delete", path):
        try:
            if limit_s is not None and path.lstat().st_mtime > limit_s:
                return False
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            return False
    return True


def sweep(store: RunStore) -> list[Garbage]:
    """Remove all that `find` returns; what cannot be removed stays. Return what was removed.

    Raises StoreError if the home cannot be read.
    """
    forget_abandoned(store.root)
    return _remove_all(find(store))


def clear_killed_deletes(store: RunStore) -> list[Garbage]:
    """Finish earlier deletions, and return what was removed; what cannot be removed stays."""
    return _remove_all(killed_deletes(store.root))


def _remove_all(items: Iterable[Garbage]) -> list[Garbage]:
    removed = []
    for garbage in items:
        with suppress(StoreError):
            if remove(garbage):
                removed.append(garbage)
    return removed


def _half_runs(store: RunStore, now_s: float) -> Iterator[Garbage]:
    """Return folders of submissions that were killed before there was a record."""
    for path in (store.root / "runs").glob("*"):
        folder = RunFolder(path)
        if path.name.startswith(".") or not path.is_dir() or folder.record.exists():
            continue
        # A folder that lost its record, but has results, is for its owner to judge.
        first = {folder.config.name, folder.git_diff.name, folder.journal.name}
        names = {name for name in os.listdir(path) if not name.endswith(".tmp")}
        is_begun = names <= first and not any(folder.journal.glob("*"))
        if is_begun and now_s - path.stat().st_mtime > _LEFTOVER_AGE_S:
            yield _garbage(path, "a submission was interrupted", until_s=now_s - _LEFTOVER_AGE_S)


def _packages(store: RunStore, now_s: float) -> Iterator[Garbage]:
    used_packages = _needed_packages(store)
    for path in store.packages.glob("*.zip"):
        age_s = now_s - path.stat().st_mtime
        if used_packages is not None and path.stem not in used_packages and age_s > PACKAGE_AGE_S:
            yield _garbage(path, "no run was submitted with it", until_s=now_s - PACKAGE_AGE_S)
    for path in store.packages.glob(".*.tmp"):
        if now_s - path.stat().st_mtime > _LEFTOVER_AGE_S:
            yield _garbage(path, "its writing was interrupted", until_s=now_s - _LEFTOVER_AGE_S)


def _needed_packages(store: RunStore) -> set[str] | None:
    """Return the hashes of packages that runs use; None if a record cannot be read."""
    hashes: set[str] = set()
    for path in (store.root / "runs").glob("*/record.json"):
        try:
            record = store.record(path.parent.name)
        except RunNotFoundError:
            continue  # Deleted meanwhile.
        except StoreError:
            return None
        hashes |= {record.code_hash, record.assets_hash, record.package_hash}
    return hashes


def _garbage(path: Path, reason: str, *, until_s: float | None = None) -> Garbage:
    num_files = sum(len(names) for _, _, names in os.walk(path)) if path.is_dir() else 1
    size_bytes = folder_size(path) or 0
    return Garbage(
        path=path,
        reason=reason,
        size_bytes=size_bytes,
        num_files=num_files,
        unless_used_after_s=until_s,
    )


# --- A preview of what deleting a run would remove and keep ---


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
