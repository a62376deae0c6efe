"""Agrees among the workers of a script on one checkpoint: rank 0 chooses, all check it.

The workers of a script need not have a process group when they ask, so they meet at the board
that they share with the driver, and not in a collective operation.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.storage import Bucket, Stored
from llmops_kernel.errors import StoreError
from llmops_kernel.track.stopping import Board
from llmops_kernel.track.tracker import StoredCheckpoint

# NFS keeps names and their absence for up to 60 s (acdirmax).
VIEW_S: Final = 75.0
_VIEW_POLL_S: Final = 0.5
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
        time.sleep(_VIEW_POLL_S)
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


_BEGIN_S: Final = 1800.0
"""Rank 0 alone may prepare data or download a model before it asks."""
_SAY_S: Final = 30.0
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class CheckpointChoice:
    """Rank 0's choice, as JSON can hold it."""

    name: str
    step: int
    token: str
    sizes: Sizes


class Copies(Protocol):
    """The run's checkpoints as this worker's node sees them."""

    def choose(self) -> CheckpointChoice | None: ...
    def take(self, choice: CheckpointChoice, *, rank: int, view_s: float) -> StoredCheckpoint: ...


class ResumeAgreement:
    """A worker's side of the agreement. The n-th call of each worker returns the same checkpoint.

    `group` names the workers that were started together, so that those of a later start agree
    again. Methods raise StoreError and OSError.
    """

    def __init__(
        self,
        board: Board,
        copies: Copies,
        *,
        rank: int,
        group: str,
        begin_s: float = _BEGIN_S,
        view_s: float = VIEW_S,
    ) -> None:
        self._board, self._copies = board, copies
        self._rank, self._group = rank, group
        self._begin_s, self._view_s = begin_s, view_s
        self._calls = 0

    def newest(self) -> StoredCheckpoint | None:
        """Return rank 0's newest complete checkpoint on each rank; None if rank 0 has none."""
        self._calls += 1
        name = f"resume-{self._group}-{self._calls}"
        choice = self._lead(name) if self._rank == 0 else self._follow(name)
        if choice is None:
            return None
        return self._copies.take(choice, rank=self._rank, view_s=self._view_s)

    def _lead(self, name: str) -> CheckpointChoice | None:
        self._board.put(name, {"state": "choosing"})
        try:
            choice = self._copies.choose()
        except (StoreError, OSError) as error:
            self._board.put(name, {"state": "failed", "error": str(error)})
            raise
        value = None if choice is None else asdict(choice)
        self._board.put(name, {"state": "chosen", "chosen": value})
        return choice

    def _follow(self, name: str) -> CheckpointChoice | None:
        begun_s, is_reported = time.monotonic(), False
        while (answer := self._answer(name)).get("state") in (None, "choosing"):
            waited_s = time.monotonic() - begun_s
            if not answer and waited_s > self._begin_s:
                raise _never_asked(waited_s)
            if waited_s > _SAY_S and not is_reported:
                print("Waiting for rank 0 to choose the checkpoint to resume from.", flush=True)
                is_reported = True
            time.sleep(_POLL_S)
        if answer["state"] == "failed":
            raise StoreError(
                f"Rank 0 cannot read the run's checkpoints: {answer['error']}",
                remedy="`llmops retry` when the storage is available",
            )
        return None if answer["chosen"] is None else CheckpointChoice(**answer["chosen"])

    def _answer(self, name: str) -> dict[str, Any]:
        value = self._board.get(name)
        return value if isinstance(value, dict) else {}


def not_fetched(path: Path, *, rank: int, problem: str) -> StoreError:
    return StoreError(
        f"The run cannot resume: rank 0 chose {path.name}, but rank {rank} cannot fetch that"
        f" checkpoint from the run storage ({problem}).",
        remedy="`llmops retry` when the storage is available",
    )


def _never_asked(waited_s: float) -> StoreError:
    return StoreError(
        f"Rank 0 did not call track.resume_checkpoint() within {waited_s:.0f} s.",
        remedy="call track.resume_checkpoint() on all workers, or on rank 0 only",
    )


# --- Fetches a checkpoint from a bucket to this node and checks what arrived ---


def fetch(bucket: Bucket, stored: Stored, path: Path) -> str:
    """Return what is wrong with the bucket's copy; empty: `path` has it, complete.

    Files of the same writing that this node has are not fetched again. Raises StoreError and
    OSError if the bucket or the disk fails.
    """
    try:
        files = bucket.manifest(stored.name)
    except ValueError as error:
        return f"{checkpoint.MANIFEST} cannot be read: {error}"
    is_same = checkpoint.token(path) == stored.token
    if not is_same:
        shutil.rmtree(path, ignore_errors=True)
    else:
        for name in checkpoint.wrong_files(path, files or {}):
            (path / name).unlink(missing_ok=True)
    bucket.fetch(stored.name, path, overwrite=not is_same)
    if wrong := checkpoint.wrong_files(path, files or {}):
        shutil.rmtree(path, ignore_errors=True)
        return f"{wrong[0]} is not what was written (its size or its SHA-256 differs)"
    checkpoint.mark_complete(path, token=stored.token, files=files, has_other_copy=True)
    return ""
