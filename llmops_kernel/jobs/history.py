"""Archives journals, logs and small outputs of runs before their cluster is suspended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from pydantic import ValidationError

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import (
    ClusterUnreachableError,
    HistoryError,
    LLMOpsError,
    RunNotFoundError,
    StoreError,
)
from llmops_kernel.jobs.client import MAX_LOG_LINES, JobsClient
from llmops_kernel.jobs.follow import saved_log
from llmops_kernel.jobs.mirror import JournalMirror
from llmops_kernel.metrics.events import parse_event
from llmops_kernel.providers.capabilities import SupportsOutputStorage
from llmops_kernel.providers.protocol import ClusterAction, ClusterProvider, Progress
from llmops_kernel.providers.registry import shares_disk
from llmops_kernel.store.files import store_errors, write_whole
from llmops_kernel.store.journal.journal import StreamTail
from llmops_kernel.store.outputs import only_on_cluster, output_events, to_copy
from llmops_kernel.store.record import Attempt
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from llmops_kernel.views.summary import list_runs

Way = Literal["suspend", "down", "delete"]
_OVER: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_SHOWN: Final = 3
FORCE: Final = "`--force` (`force=True`)"
_CLOCKS_S: Final = 600.0
"""The client's clock and that of Kubernetes may differ by so much."""


@dataclass(frozen=True)
class ArchivedRuns:
    """Files that were archived from a cluster."""

    runs: tuple[str, ...]
    """Runs whose journals and logs are complete in the run folder now."""
    lost: dict[str, str]
    """Run -> why it is not complete."""


def stop_after_archiving(
    provider: ClusterProvider,
    name: str,
    method: Way,
    *,
    store: RunStore | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Archive the runs of a cluster, then suspend, stop or delete it.

    Raises HistoryError when they cannot be archived; `force` continues without.
    """
    archive_runs(provider, name, store=store, force=force, progress=progress)
    actions: dict[Way, Callable[[str], None]] = {
        "suspend": provider.suspend,
        "down": provider.down,
        "delete": provider.delete,
    }
    actions[method](name)


def archive_before(
    provider: ClusterProvider,
    name: str,
    action: ClusterAction,
    *,
    store: RunStore | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Archive the runs of a cluster whose head does not survive a resume or another size.

    Raises HistoryError, ClusterNotFoundError.
    """
    if not provider.shares_disk and provider.ends_head(name, action):
        archive_runs(provider, name, store=store, force=force, progress=progress)


def archive_runs(
    provider: ClusterProvider,
    name: str,
    *,
    store: RunStore | None = None,
    force: bool = False,
    progress: Progress | None = None,
    without: str = FORCE,
) -> tuple[str, ...]:
    """Return the runs that were archived.

    Does nothing where the disk is shared, or where nothing of the cluster runs. `without` names
    the option that continues without archiving.

    Raises HistoryError, ClusterNotFoundError.
    """
    if provider.shares_disk:
        return ()
    kept_store = store or RunStore()
    if not runs_to_archive(kept_store, name):
        return ()
    info = provider.get(name)
    since_s = info.created_s
    runs = runs_to_archive(kept_store, name, since_s=since_s)
    if not runs or info.is_gone:
        return ()
    if progress is not None:
        progress("Archiving journals and logs of its runs")
    try:
        with JobsClient(provider.connect(name), cluster=name) as client:
            saved = save_history(kept_store, name, client, since_s=since_s)
    except LLMOpsError as error:
        if force or _is_lost_already(provider, name):
            return ()
        raise _error(name, runs, error.message, without, remedy=_remedy(error)) from error
    if saved.lost and not force:
        raise _error(name, tuple(saved.lost), next(iter(saved.lost.values())), without)
    return saved.runs


def require_no_other_runs(provider: ClusterProvider, name: str, *, store: RunStore) -> None:
    """Raise HistoryError if the cluster holds journals of runs that this store does not have.

    They are of other users, whose stores cannot be written; the cluster's end would destroy them.
    """
    if provider.shares_disk:
        return
    if provider.get(name).is_gone:
        return
    try:
        with JobsClient(provider.connect(name), cluster=name) as client:
            foreign = [run_id for run_id in _runs_on(client) if not store.knows(run_id)]
    except LLMOpsError as error:
        if _is_lost_already(provider, name):
            return
        raise HistoryError(
            f"Whether cluster {name!r} holds journals of other users' runs is unknown:"
            f" {error.message}",
            remedy=f"{_remedy(error)}; `--force` continues without that check",
        ) from error
    if foreign:
        raise HistoryError(
            f"Cluster {name!r} holds journals of {counted(len(foreign), 'run')}"
            f" that {'is' if len(foreign) == 1 else 'are'} not in this user's store"
            f" ({_listing(foreign)}): suspending or deleting the cluster would destroy them",
            remedy="ask whoever submitted them to follow them until they end, then `llmops cluster"
            f" guard {name} --once --force`; a folder as `storage.runs` in the cluster template"
            " keeps the journals of all",
        )


def _runs_on(client: JobsClient) -> list[str]:
    """Return the runs with journals on any node. Raises ClusterUnreachableError."""
    run_ids = {
        PurePosixPath(path).parent.name
        for node in client.node_ids()
        for path in client.log_files(node, glob="llmops/*/*.jsonl", strict=True)
    }
    return sorted(run_ids)


def runs_to_archive(
    store: RunStore, cluster: str, *, since_s: float | None = None
) -> tuple[str, ...]:
    """Return the runs on a cluster whose journals or logs may be incomplete in the run folder.

    `since_s`: when the cluster was created; runs of an earlier one of that name are skipped.
    """
    # A cluster is called by its short name until another one has that name too.
    spellings = dict.fromkeys((cluster, cluster.rpartition("/")[2]))
    return tuple(
        summary.run_id
        for spelling in spellings
        for summary in list_runs(store, cluster=spelling, hidden=True)
        if not _is_home(store, summary.run_id, is_over=summary.state in _OVER)
        and not is_older(store, summary.run_id, since_s)
    )


def is_older(store: RunStore, run_id: str, since_s: float | None) -> bool:
    with suppress(LLMOpsError):
        last = max((attempt.submitted_s for attempt in store.attempts(run_id)), default=None)
        return last is not None and since_s is not None and last < since_s - _CLOCKS_S
    return False


def save_history(
    store: RunStore, cluster: str, client: JobsClient, *, since_s: float | None = None
) -> ArchivedRuns:
    """Archive all runs of this store on a cluster. Raises ClusterUnreachableError."""
    nodes = client.node_ids()
    saved, lost = [], {}
    for run_id in runs_to_archive(store, cluster, since_s=since_s):
        try:
            _save(store, run_id, client, nodes)
        except RunNotFoundError:
            continue  # Deleted meanwhile.
        except LLMOpsError as error:
            lost[run_id] = error.message
        else:
            saved.append(run_id)
    return ArchivedRuns(tuple(saved), lost)


def _is_home(store: RunStore, run_id: str, *, is_over: bool) -> bool:
    with suppress(LLMOpsError):
        if shares_disk(store.record(run_id).provider):
            return True
        if not is_over:
            return False
        folder = store.folder(run_id)
        attempts = store.attempts(run_id)
        has_logs = all(saved_log(folder, attempt.number).exists() for attempt in attempts)
        return has_logs and not to_copy(output_events(folder))
    return True


def _save(store: RunStore, run_id: str, client: JobsClient, nodes: Sequence[str]) -> None:
    journal = store.folder(run_id).journal
    last = _last_lines(client, run_id, nodes)
    with JournalMirror(client.connection, run_id=run_id, journal=journal) as mirror:
        mirror.sync(everything=True)
    if mirror.not_copied is not None:
        raise mirror.not_copied
    for stream, seq in last.items():
        local_seqs = [event.seq for event in StreamTail(journal / f"{stream}.jsonl").read()]
        if max(local_seqs, default=0) < seq:
            raise StoreError(
                f"journal {stream} of run {run_id} is incomplete:"
                f" {max(local_seqs, default=0)} of {seq} lines were copied",
                remedy="free space on that disk, or try again",
            )
    for attempt in store.attempts(run_id):
        _save_log(store, run_id, attempt, client)


def _last_lines(client: JobsClient, run_id: str, nodes: Sequence[str]) -> dict[str, int]:
    """Return the number of the last line of each stream that the cluster has.

    Unlike a mirror, which skips what does not answer and tries again later, this raises.
    """
    last: dict[str, int] = {}
    for node in nodes:
        for name in client.log_files(node, glob=f"llmops/{run_id}/*.jsonl", strict=True):
            data = client.read_log(node, name, lines=2)
            if data is None:
                raise ClusterUnreachableError(f"node {node[:8]} did not return {name}")
            seqs = [seq for line in data.split(b"\n")[:-1] if (seq := _seq(line)) is not None]
            stream = PurePosixPath(name).stem
            last[stream] = max([last.get(stream, 0), *seqs])
    return last


def _seq(line: bytes) -> int | None:
    try:
        return parse_event(line).seq
    except ValidationError:
        return None


def _save_log(store: RunStore, run_id: str, attempt: Attempt, client: JobsClient) -> None:
    """Save the driver log; a job from before the cluster's last restart is unknown to Ray."""
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
        return provider.head_is_gone(name)
    return False


def _listing(runs: Sequence[str]) -> str:
    return ", ".join(runs[:_SHOWN]) + (" ..." if len(runs) > _SHOWN else "")


def _remedy(error: LLMOpsError) -> str:
    """Return what makes it possible: a missing right does not come with time."""
    is_denied = getattr(error, "code", None) in (401, 403)
    return error.remedy if is_denied and error.remedy else _AGAIN


_AGAIN: Final = "try again when its Ray API answers"


def _error(
    cluster: str, runs: tuple[str, ...], reason: str, without: str, *, remedy: str = _AGAIN
) -> HistoryError:
    return HistoryError(
        f"Journals and logs of {len(runs)} run{'' if len(runs) == 1 else 's'} on cluster"
        f" {cluster!r} ({_listing(runs)}) cannot be archived: {reason}",
        remedy=f"{remedy}; {without} continues without archiving, and their latest events are lost",
    )


# --- Finds outputs that are on a cluster's nodes only, for warnings at submit and before a loss ---


def about_outputs(provider: ClusterProvider, cluster: str) -> str:
    """Return what becomes of a run's output on a cluster that keeps none.

    Empty if all are kept, and if that cannot be known now: it must not end a submission.
    """
    if provider.shares_disk or not isinstance(provider, SupportsOutputStorage):
        return ""
    try:
        storage = provider.output_storage(cluster)
    except LLMOpsError:
        return ""
    if storage.runs is not None:
        return ""
    copied = f"Outputs of up to {fmt.byte_size(storage.copied_bytes)} are copied to the run folder;"
    removes = ", or its autoscaler removes their pod," if storage.pods_go_when_idle else ","
    return (
        f"{copied if storage.copied_bytes else 'No output is copied to the run folder;'} others are"
        f" lost when cluster {cluster} is suspended or deleted{removes} as its template has no"
        " storage.runs"
    )


def only_copies(store: RunStore, cluster: str, *, since_s: float | None = None) -> tuple[str, ...]:
    """Return the outputs that end with the cluster, one line each.

    Outputs that are small enough are left out: they are copied before. `since_s`: runs that were
    submitted earlier are skipped, as they were on an earlier cluster of that name.
    """
    lines = []
    for spelling in dict.fromkeys((cluster, cluster.rpartition("/")[2])):
        for run in list_runs(store, cluster=spelling, hidden=True):
            if is_older(store, run.run_id, since_s):
                continue
            for event in only_on_cluster(output_events(store.folder(run.run_id))):
                if not event.files:
                    label, size = event.what.replace("_", " "), fmt.byte_size(event.size_bytes)
                    lines.append(f"the only copy of the {label} of run {run.run_id} ({size})")
    return tuple(lines)
