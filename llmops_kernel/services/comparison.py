"""Which runs are compared with which, and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from llmops_kernel.errors import ComparisonError
from llmops_kernel.store.diff import RunDiff, diff_runs
from llmops_kernel.store.store import RunStore


@dataclass(frozen=True)
class ComparedRuns:
    """Runs from the oldest to the newest, and what differs between them."""

    run_ids: tuple[str, ...]
    diffs: tuple[RunDiff, ...]
    """Differences from each run to the next, or from the base to each other run."""


def compare(store: RunStore, run_ids: Sequence[str], *, base: str | None = None) -> ComparedRuns:
    """Order runs by their submission and compute their differences.

    Raises ComparisonError for fewer than two different runs, or a `base` that is not one of them.
    """
    distinct = dict.fromkeys(run_ids)
    if len(distinct) < 2:
        count = f"{len(distinct)} run" + ("" if len(distinct) == 1 else "s")
        raise ComparisonError(
            f"compare needs at least two different runs; it was given {count}",
            remedy="give two or more, for example: llmops compare last~1 last",
        )
    ordered = sorted(distinct, key=lambda run_id: store.record(run_id).created_s)
    pairs = _pairs(ordered, base)
    return ComparedRuns(tuple(ordered), tuple(diff_runs(store, a, b) for a, b in pairs))


def diff(store: RunStore, first: str, second: str) -> RunDiff:
    """Return what differs in config, code and environment, from the older run to the newer."""
    older, newer = sorted((first, second), key=lambda run_id: store.record(run_id).created_s)
    return diff_runs(store, older, newer)


def _pairs(run_ids: Sequence[str], base: str | None) -> list[tuple[str, str]]:
    if base is None:
        return list(pairwise(run_ids))
    if base not in run_ids:
        raise ComparisonError(
            f"{base!r} is not one of the compared runs", remedy=f"use one of {', '.join(run_ids)}"
        )
    return [(base, run_id) for run_id in run_ids if run_id != base]
