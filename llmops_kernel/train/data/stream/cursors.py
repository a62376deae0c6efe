"""The ends of all workers' rows, kept with each checkpoint: maybe inside of a long text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from llmops_kernel.train.data.stream.row_ends import Cursor

FILE = "llmops_rows.json"


def write_cursors(checkpoint: Path, ends: Sequence[Cursor]) -> None:
    """Add them to a checkpoint that is not marked complete yet, in the order of ranks."""
    with suppress(OSError):  # A full disk is reported by those who write the rest.
        (checkpoint / FILE).write_text(json.dumps([[end.rows, end.pieces] for end in ends]))


def read_cursors(checkpoint: Path, *, world: int) -> list[Cursor] | None:
    """Return them; None for a checkpoint of an earlier version, whose rows were never divided."""
    with suppress(OSError, ValueError, TypeError):
        cursors = [Cursor(*map(int, end)) for end in json.loads((checkpoint / FILE).read_text())]
        return cursors if len(cursors) == world else None
    return None
