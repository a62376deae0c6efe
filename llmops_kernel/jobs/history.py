"""Brings the history of runs home before their cluster goes: journals, logs, records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from pydantic import ValidationError

from llmops_kernel.clusters.kuberay.provider import KubeRayProvider
from llmops_kernel.clusters.provider import ClusterProvider, ClusterState, Progress
from llmops_kernel.errors import (
    ClusterUnreachableError,
    HistoryError,
    LLMOpsError,
    RunNotFoundError,
    StoreError,
)
from llmops_kernel.jobs.client import MAX_LOG_LINES, JobsClient
from llmops_kernel.jobs.follow import SHARED_PROVIDERS
from llmops_kernel.jobs.log_source import saved_log
from llmops_kernel.jobs.mirror import JournalMirror
from llmops_kernel.metrics.events import parse_event
from llmops_kernel.runs.files import store_errors, write_whole
from llmops_kernel.runs.journal import StreamTail
from llmops_kernel.runs.record import Attempt
from llmops_kernel.runs.store import RunStore

Way = Literal["suspend", "down", "delete"]
_OVER: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_SHOWN: Final = 3
_CLOCKS_S: Final = 600.0
"""The client's clock and that of Kubernetes may differ by so much."""


@dataclass(frozen=True)
class Saved:
    """What a look at the cluster has brought."""

    runs: tuple[str, ...]
    """Those whose journals and logs are all here now."""
    lost: dict[str, str]
    """Run -> why it is not all here."""


def put_away(
    provider: ClusterProvider,
    name: str,
    way: Way,
    *,
    store: RunStore | None = None,
    force: bool = False,
    tell: Progress | None = None,
) -> None:
    """Suspend, end or delete a cluster; before that, all that its runs told is brought home.

    Raises HistoryError when that cannot be done; `force` goes on without.
    """
    bring_home(provider, name, store=store, force=force, tell=tell)
    acts: dict[Way, Callable[[str], None]] = {
        "suspend": provider.suspend,
        "down": provider.down,
        "delete": provider.delete,
    }
    acts[way](name)


def bring_home(
    provider: ClusterProvider,
    name: str,
    *,
    store: RunStore | None = None,
    force: bool = False,
    tell: Progress | None = None,
) -> tuple[str, ...]:
    """Runs that were saved. Nothing is to be done where the disk is shared, or the head is dead.

    Raises HistoryError, ClusterNotFoundError.
    """
    if provider.name in SHARED_PROVIDERS:
        return ()
    kept_store = store or RunStore()
    if not away_from_home(kept_store, name):
        return ()
    info = provider.get(name)
    since_s = info.created_s
    runs = away_from_home(kept_store, name, since_s=since_s)
    if not runs or info.state in (ClusterState.DEAD, ClusterState.STOPPED):
        return ()
    if tell is not None:
        tell("Bringing journals and logs of its runs home")
    try:
        with JobsClient(provider.connect(name), cluster=name) as client:
            saved = save_history(kept_store, name, client, since_s=since_s)
    except LLMOpsError as error:
        if force or _is_lost_already(provider, name):
            return ()
        raise _error(name, runs, error.message) from error
    if saved.lost and not force:
        raise _error(name, tuple(saved.lost), next(iter(saved.lost.values())))
    return saved.runs


def away_from_home(
    store: RunStore, cluster: str, *, since_s: float | None = None
) -> tuple[str, ...]:
    """Runs on it that may have told more than the run folder has.

    `since_s`: runs of an earlier cluster of that name are left out.
    """
    # Its name for people is the short one until there is another of that name.
    spellings = dict.fromkeys((cluster, cluster.rpartition("/")[2]))
    return tuple(
        summary.run_id
        for spelling in spellings
        for summary in store.list(cluster=spelling)
        if not _is_home(store, summary.run_id, is_over=summary.state in _OVER)
        and not _is_older(store, summary.run_id, since_s)
    )


def _is_older(store: RunStore, run_id: str, since_s: float | None) -> bool:
    with suppress(LLMOpsError):
        last = max((attempt.submitted_s for attempt in store.attempts(run_id)), default=None)
        return last is not None and since_s is not None and last < since_s - _CLOCKS_S
    return False


def save_history(
    store: RunStore, cluster: str, client: JobsClient, *, since_s: float | None = None
) -> Saved:
    """All runs of this store on that cluster. Raises what says that Ray is silent."""
    nodes = client.node_ids()
    saved, lost = [], {}
    for run_id in away_from_home(store, cluster, since_s=since_s):
        try:
            _save(store, run_id, client, nodes)
        except RunNotFoundError:
            continue  # Deleted meanwhile.
        except LLMOpsError as error:
            lost[run_id] = error.message
        else:
            saved.append(run_id)
    return Saved(tuple(saved), lost)


def _is_home(store: RunStore, run_id: str, *, is_over: bool) -> bool:
    with suppress(LLMOpsError):
        if store.record(run_id).provider in SHARED_PROVIDERS:
            return True
        if not is_over:
            return False
        folder = store.folder(run_id)
        attempts = store.attempts(run_id)
        return all(saved_log(folder, attempt.number).exists() for attempt in attempts)
    return True


def _save(store: RunStore, run_id: str, client: JobsClient, nodes: Sequence[str]) -> None:
    journal = store.folder(run_id).journal
    told = _last_told(client, run_id, nodes)
    with JournalMirror(client.connection, run_id=run_id, journal=journal) as mirror:
        mirror.sync(everything=True)
    for stream, seq in told.items():
        here = [event.seq for event in StreamTail(journal / f"{stream}.jsonl").read()]
        if max(here, default=0) < seq:
            raise StoreError(
                f"journal {stream} of run {run_id} is not whole: {max(here, default=0)} of {seq}"
                " lines are here",
                remedy="free space on that disk, or try again",
            )
    for attempt in store.attempts(run_id):
        _save_log(store, run_id, attempt, client)


def _last_told(client: JobsClient, run_id: str, nodes: Sequence[str]) -> dict[str, int]:
    """The number of the last line of each stream that the cluster has.

    A mirror passes over what does not answer and comes back later; here there is no later.
    """
    told: dict[str, int] = {}
    for node in nodes:
        for name in client.log_files(node, glob=f"llmops/{run_id}/*.jsonl", strict=True):
            data = client.read_log(node, name, lines=2)
            if data is None:
                raise ClusterUnreachableError(f"node {node[:8]} does not give {name}")
            seqs = [seq for line in data.split(b"\n")[:-1] if (seq := _seq(line)) is not None]
            stream = PurePosixPath(name).stem
            told[stream] = max([told.get(stream, 0), *seqs])
    return told


def _seq(line: bytes) -> int | None:
    try:
        return parse_event(line).seq
    except ValidationError:
        return None


def _save_log(store: RunStore, run_id: str, attempt: Attempt, client: JobsClient) -> None:
    """An earlier life of the cluster is not known to this one: nothing is left to save of it."""
    job = client.get(attempt.submission_id)
    if job is None:
        return
    text = client.driver_log(job, lines=MAX_LOG_LINES) or job.message or ""
    path = saved_log(store.folder(run_id), attempt.number)
    if not text:
        return
    with store_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())


def _is_lost_already(provider: ClusterProvider, name: str) -> bool:
    with suppress(LLMOpsError):
        return isinstance(provider, KubeRayProvider) and provider.head_is_gone(name)
    return False


def _error(cluster: str, runs: tuple[str, ...], why: str) -> HistoryError:
    listed = ", ".join(runs[:_SHOWN]) + (" ..." if len(runs) > _SHOWN else "")
    return HistoryError(
        f"Journals and logs of {len(runs)} run{'' if len(runs) == 1 else 's'} on cluster"
        f" {cluster!r} ({listed}) cannot be brought home: {why}",
        remedy="try again when its Ray answers; with `--force` (`force=True`) it goes, and what"
        " they told last is lost",
    )
