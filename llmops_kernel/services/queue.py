"""The queue of a cluster: who waits for what, and its order changed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmops_kernel.errors import RunStateError, SubmissionError
from llmops_kernel.jobs.control import tell_cluster
from llmops_kernel.jobs.lost_runs import recent_runs
from llmops_kernel.jobs.submit import user_name
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.store.record import QUEUE_LINE, QUEUE_MESSAGE, Priority, RunRecord


@dataclass(frozen=True, kw_only=True)
class QueuedRun:
    """A run that waits for resources of a cluster, or holds some."""

    run: str
    user: str
    priority: Priority
    place: int | None
    """1 for the next one; None for a run that has its resources."""
    needs: Mapping[str, float]
    """Resources by Ray's names."""
    since_s: float
    """Unix time since which it waits, or has its resources."""
    moved_by: str = ""
    """Who changed its priority or place."""


def queue(cluster: Cluster) -> list[QueuedRun]:
    """Return the runs of all users that wait, the next one first, then those that run.

    A Ray job reads it, in about a second. Runs that need no resources of their own, such as
    scorings on CPUs, are not in it. Raises SubmissionError where the job fails.
    """
    info = cluster.ready_info()
    return [] if info.jobs_running == 0 else _runs_in(_tell(cluster, {}, info=info))


def change(
    cluster: Cluster, run_id: str, *, priority: Priority | None = None, before: str | None = None
) -> list[QueuedRun]:
    """Change a run's priority, or put it before another one (empty: before all); return the queue.

    Of a run that has its resources only the priority matters: one of low priority gives way.
    Raises RunStateError if the run is not in the queue.
    """
    store = cluster.backend.store
    message = {
        "run": run_id,
        "priority": priority,
        "before": before,
        "by": user_name() or "someone",
    }
    record = store.record(run_id)
    answer = _tell(cluster, message, info=cluster.ready_info(), record=record)
    if not answer["moved"]:
        raise RunStateError(
            f"Run {run_id} is not in the queue of cluster {cluster.name!r}: it"
            f" {'has ended' if view_of(store, run_id).is_terminal else 'asks for no resources'}",
            remedy="`llmops queue` lists the runs that wait and those that run",
        )
    return _runs_in(answer)


def _tell(
    cluster: Cluster,
    message: dict[str, Any],
    *,
    info: ClusterInfo,
    record: RunRecord | None = None,
) -> dict[str, Any]:
    store = cluster.backend.store
    if record is None:
        newest = next(iter(recent_runs(store, cluster.name)), None)
        if newest is None:
            raise RunStateError(
                f"No run of yours was submitted to cluster {cluster.name!r}: nothing is known of"
                " its queue",
                remedy=f"`llmops status {cluster.name}` shows all that runs on it",
            )
        record = store.record(newest)
    with cluster.client() as client:
        log = tell_cluster(store, record, QUEUE_MESSAGE, message, cluster=info, client=client)
    lines = [line for line in log.splitlines() if line.startswith(QUEUE_LINE)]
    if not lines:
        raise SubmissionError(
            f"Cluster {cluster.name!r} did not answer about its queue",
            remedy=f"`llmops status {cluster.name}` shows whether the cluster is well; try again",
        )
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix(QUEUE_LINE))
    return answer


def _runs_in(answer: Mapping[str, Any]) -> list[QueuedRun]:
    tickets = [*enumerate(answer["waiting"], 1), *((None, each) for each in answer["running"])]
    return [
        QueuedRun(
            run=ticket["run"],
            user=ticket["user"],
            priority=ticket["priority"],
            place=place,
            needs=ticket["wanted"],
            since_s=ticket["held_since_s"] or ticket["asked_ns"] / 1e9,
            moved_by=ticket["moved_by"],
        )
        for place, ticket in tickets
    ]
