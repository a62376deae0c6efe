"""Checkpoint folders: which are complete, which is the newest, which can be deleted."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.driver import checkpoint_manifest as manifest
from llmops_kernel.driver.checkpoint_manifest import MARKER

_NAME = re.compile(r"checkpoint-(\d+)$")
_WHOLE = "all workers have written their part\n"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int


def marked(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints that were marked complete, oldest first; some may be damaged."""
    found = [
        Checkpoint(path, int(match.group(1)))
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.search(path.name)) and (path / MARKER).exists()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def complete(folder: Path) -> list[Checkpoint]:
    """Return the complete checkpoints, oldest first; interrupted and truncated ones are left out.

    Those of earlier versions have no manifest: their marker decides.
    """
    return [one for one in marked(folder) if not manifest.size_damage(one.path)]


def latest(folder: Path) -> Checkpoint | None:
    for found in reversed(marked(folder)):
        if not manifest.size_damage(found.path):
            return found
    return None


def step_of(name: str) -> int | None:
    """Return 12 for `checkpoint-12`; None for other names."""
    match = _NAME.search(name)
    return int(match.group(1)) if match else None


def token(path: Path) -> str | None:
    """Return the token given to `mark_complete`; None if the checkpoint is not complete."""
    try:
        return (path / MARKER).read_text().strip()
    except OSError:
        return None


def mark_complete(
    path: Path,
    *,
    token: str = _WHOLE,
    files: manifest.Manifest | None = None,
    has_other_copy: bool = False,
) -> None:
    """Mark a checkpoint complete, atomically and durably; all workers must have written.

    `files`: what it consists of, if not of what is in the folder now. `has_other_copy`: a bucket
    has it as well, so the training need not wait for this disk. Raises OSError.
    """
    if not has_other_copy:
        manifest.sync(path)
    manifest.write(path, manifest.sizes(path) if files is None else files)
    manifest.write_durably(path / MARKER, token)


def rotate(folder: Path, *, keep: int) -> list[Path]:
    """Delete all complete checkpoints but the newest `keep`, and interrupted ones before those."""
    found = complete(folder)
    kept = {checkpoint.path for checkpoint in found[-keep:]}
    newest = found[-1].step if found else 0
    gone = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.search(path.name)
        if match and path not in kept and int(match.group(1)) <= newest:
            # The marker goes first: a half-deleted folder must not look complete.
            (path / MARKER).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path)
    return gone


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
