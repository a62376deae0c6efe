"""Stop a run; retry one that has ended."""

from __future__ import annotations

import time

from llmops_kernel.errors import RunStateError, SubmissionError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.jobs.submit import (
    PackageFile,
    check_waiting,
    entrypoint_of,
    new_attempt,
    start_attempt,
)
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.store.journal.view import STOP_PHASE, RunView
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore, submitting


def stop_run(store: RunStore, run_id: str, *, client: JobsClient) -> bool:
    """Request a stop and return at once; the run saves a checkpoint first.

    Returns False when the run had already ended.
    """
    run_id = store.resolve(run_id)
    attempt = _last_attempt(store, run_id)
    if _has_ended(store.view(run_id), attempt) or not client.stop(attempt.submission_id):
        return False
    event = PhaseEvent(name=STOP_PHASE, state="begin", detail="requested by the user")
    append_as_observer(store.folder(run_id).journal, event, attempt=attempt.number)
    return True


def retry_run(store: RunStore, run_id: str, *, cluster: ClusterInfo, client: JobsClient) -> Attempt:
    """Start a new attempt with the same record and packages, from the last checkpoint.

    Raises RunStateError while an attempt runs, SubmissionError when the packages are gone, this
    version cannot run the run's kind, or too many runs wait.
    """
    run_id = store.resolve(run_id)
    record, view = store.record(run_id), store.view(run_id)
    entrypoint = entrypoint_of(kind_named(record.kind))
    attempts = store.attempts(run_id)
    if attempts and not _has_ended(view, attempts[-1]):
        raise RunStateError(
            f"Run {run_id} is {view.state}; only a run that has ended can be retried",
            remedy=f"`llmops stop {run_id}` first, or `llmops resubmit {run_id}` to start a"
            f" second run",
        )
    check_waiting(cluster)
    packages = kept_packages(store, record)
    number = attempts[-1].number + 1 if attempts else 1
    checkpoint = view.checkpoints[-1].path if view.checkpoints else None
    attempt = new_attempt(
        record, cluster, number=number, submitted_s=time.time(), resumed_from=checkpoint
    )
    with submitting(store.root, run_id):
        start_attempt(
            record,
            attempt,
            store=store,
            cluster=cluster,
            client=client,
            packages=packages,
            entrypoint=entrypoint,
        )
    return attempt


def kept_packages(store: RunStore, record: RunRecord) -> list[PackageFile]:
    """Return the packages that the run was submitted with. Raises SubmissionError without them."""
    hashes = {
        "code": record.code_hash,
        "library": record.package_hash,
        "assets": record.assets_hash,
    }
    packages = []
    for role, hash_ in hashes.items():
        if not hash_:
            continue
        path = store.packages / f"{hash_}.zip"
        if not path.exists():
            raise SubmissionError(
                f"The {role} package of run {record.run_id} was deleted ({path})",
                remedy=f"`llmops resubmit {record.run_id}` starts a new run from the current"
                f" workspace",
            )
        packages.append(PackageFile(role=role, name=f"_ray_pkg_{hash_}.zip", path=path))
    return packages


def _last_attempt(store: RunStore, run_id: str) -> Attempt:
    attempts = store.attempts(run_id)
    if not attempts:
        raise RunStateError(
            f"Run {run_id} has not been submitted to a cluster yet", remedy="try again in a moment"
        )
    return attempts[-1]


def _has_ended(view: RunView, attempt: Attempt) -> bool:
    return view.is_terminal and view.attempt >= attempt.number
