"""The view of a worker on a checkpoint that rank 0 chose: the same, later, or different."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from llmops_kernel.driver import checkpoint
from llmops_kernel.errors import StoreError

# NFS keeps names and their absence for up to 60 s (acdirmax).
VIEW_S: Final = 75.0
_POLL_S: Final = 0.5
Sizes = dict[str, int] | None
"""Bytes of each file; None for a checkpoint of an earlier version, which has no manifest."""


def sizes(path: Path) -> Sizes:
    """Return the sizes of its files. Raises ValueError and OSError."""
    files = checkpoint.read(path)
    return None if files is None else {name: entry.size_bytes for name, entry in files.items()}


def wait_for(path: Path, expected: Sizes, *, view_s: float) -> str:
    """Return what this rank sees differently from rank 0 after `view_s`; empty: nothing."""
    deadline_s = time.monotonic() + view_s
    while (problem := _problem(path, expected)) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return problem


def _problem(path: Path, expected: Sizes) -> str:
    if checkpoint.token(path) is None:
        return f"has no complete {path.name}"
    try:
        if sizes(path) != expected:
            return f"has another writing of {path.name}"
    except (OSError, ValueError) as error:
        return str(error)
    return checkpoint.size_damage(path)


def other_view(path: Path, *, rank: int, problem: str) -> StoreError:
    return StoreError(
        f"The run cannot resume: rank 0 found {path.name} in {path.parent}, but rank {rank} sees"
        f" something else there ({problem}).",
        remedy="storage.runs must be one folder that all nodes see alike: check its mount on the"
        f" node of rank {rank}, then `llmops retry`",
    )
