"""What Ray Train's error says: which workers are gone, and whether the code is to blame."""

from __future__ import annotations

from typing import Any

from ray.train import WorkerGroupError

from llmops_kernel.driver.compat import is_lost_worker
from llmops_kernel.train.failures import is_peer_loss
from llmops_kernel.train.ray.worker_death import death_reason, shortened


def is_code_failure(error: Any) -> bool:
    """Return whether every failed worker raised, and at least one for more than a lost peer."""
    if not isinstance(error, WorkerGroupError) or not error.worker_failures:
        return False
    failures = list(error.worker_failures.values())
    if any(is_lost_worker(one) for one in failures):
        return False
    return not all(is_peer_loss(f"{type(one).__name__} {one}") for one in failures)


def lost_ranks(error: Any) -> tuple[int, ...]:
    """Return the ranks whose processes are gone; empty if all workers raised."""
    failures = getattr(error, "worker_failures", None) or {}
    return tuple(sorted(rank for rank, one in failures.items() if is_lost_worker(one)))


def cause(error: Any) -> str:
    """Return one clause: which ranks, and what happened to them."""
    failures = getattr(error, "worker_failures", None)
    if not failures:
        return shortened((str(error).strip().splitlines() or ["no reason was reported"])[-1])
    dead = lost_ranks(error)
    ranks = dead or tuple(sorted(failures))
    first = str(failures[ranks[0]])
    workers = f"worker rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
    if dead:
        several = f" are gone; rank {ranks[0]}" if len(ranks) > 1 else ""
        return f"{workers}{several} {death_reason(first)}"
    return f"{workers} lost the connection to the other workers"
