"""Runs that waited when the head of their cluster was lost are submitted again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.control import retry_run
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, Progress
from llmops_kernel.store.store import RunStore

_LOOKS_BACK_S: Final = 7 * 24 * 3600.0
"""Runs that are older are not submitted again by themselves."""
_NAMES_FOR_S: Final = 3600.0
"""Who starts a cluster later than that after a loss was noticed has been told of it."""
_AT_ONCE: Final = 16


def recent_runs(store: RunStore, cluster: str) -> Iterator[str]:
    """Yield the runs of the last week that were first submitted to a cluster, newest first."""
    names = (cluster, cluster.rpartition("/")[2])
    for row in store.listed():
        if row.cluster in names and row.created_s > time.time() - _LOOKS_BACK_S:
            yield row.run_id


def _of_earlier_heads(store: RunStore, info: ClusterInfo) -> list[str]:
    """Return the runs of earlier heads that did not end by themselves, as far as is known.

    A week may have thousands of runs: the journals of those that went well are not read.
    """
    run_ids = list(recent_runs(store, info.name))
    summaries = store.cached_summaries(run_ids)
    lost = []
    for run_id in run_ids:
        summary, attempts = summaries.get(run_id), store.attempts(run_id)
        went_well = summary is not None and summary.state in ("SUCCEEDED", "STOPPED")
        if went_well or not attempts or info.created_s is None:
            continue
        if attempts[-1].submitted_s < info.created_s:
            end = view_of(store, run_id).end
            if end is None or end.is_lost:
                lost.append(run_id)
    return lost


def resubmit_waiting(
    store: RunStore,
    info: ClusterInfo,
    *,
    provider: ClusterProvider,
    client: JobsClient,
    progress: Progress | None = None,
) -> list[str]:
    """Submit the runs again that waited when an earlier head of the cluster was lost.

    They are new attempts of the same runs, in the old order, with the priority of their submission.
    Runs that had begun are named: one of them may be why the head was lost. Returns the ids of
    those submitted.
    """
    waiting, begun = [], []
    lost = _of_earlier_heads(store, info)

    def settle(run_id: str) -> None:
        with suppress(LLMOpsError):
            Observer(store, run_id, provider=provider).check()

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # Each waits for a run's last words.
        list(pool.map(settle, lost))
    for run_id in lost:
        view = view_of(store, run_id)
        if view.end is None or not view.end.is_lost:
            continue
        if view.queue is not None or not view.has_begun:
            waiting.append((store.attempts(run_id)[-1].submitted_s, run_id))
        elif time.time() - view.end.time_s < _NAMES_FOR_S:
            begun.append(run_id)
    say = progress or (lambda _: None)
    if waiting:
        say(f"Submitting again what waited when the head was lost: {counted(len(waiting), 'run')}")
    waiting.sort()
    for _, run_id in waiting:
        retry_run(store, run_id, cluster=info, client=client)
    if begun:
        say(
            f"{counted(len(begun), 'run')} had begun when the head was lost: `llmops retry RUN`"
            f" goes on with {', '.join(begun[:3])}{' and others' if len(begun) > 3 else ''}"
        )
    return [run_id for _, run_id in waiting]
