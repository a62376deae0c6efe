"""Stop a run; retry or reproduce one that has ended."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from llmops_kernel.config.reading.document import dump
from llmops_kernel.errors import RunStateError, SubmissionError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.jobs.submit import (
    PackageFile,
    check_waiting,
    client_versions,
    entrypoint_of,
    hardware_of,
    new_attempt,
    runtime_env,
    start_attempt,
    user_name,
)
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.store.code import git_diff_of
from llmops_kernel.store.journal.view import STOP_PHASE, RunView
from llmops_kernel.store.record import MESSAGE_METADATA, Attempt, RunRecord, new_run_id
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.store.store import RunStore, submitting

REPRODUCTION: Final = "reproduction"
"""Tag of a run that reproduces another one."""
_TELL_S: Final = 60.0
_POLL_S: Final = 0.1


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


def tell_run(
    store: RunStore, run_id: str, name: str, value: Any, *, cluster: ClusterInfo, client: JobsClient
) -> None:
    """Hand a value to the newest attempt of a run, by a job that does only that.

    `value` is what JSON can hold. Raises RunStateError for a run that has ended, SubmissionError
    where the job fails.
    """
    run_id = store.resolve(run_id)
    attempt = _last_attempt(store, run_id)
    if _has_ended(store.view(run_id), attempt):
        raise RunStateError(
            f"Run {run_id} has ended", remedy="it takes no messages; `llmops runs` shows others"
        )
    name = f"{run_id}/{attempt.number}/{name}"
    tell_cluster(store, store.record(run_id), name, value, cluster=cluster, client=client)


def tell_cluster(
    store: RunStore,
    record: RunRecord,
    name: str,
    value: Any,
    *,
    cluster: ClusterInfo,
    client: JobsClient,
) -> str:
    """Hand a value to a cluster by a job with the code of a run; return what the job printed.

    Raises SubmissionError where the job fails.
    """
    submission_id = f"tell-{record.run_id}-{secrets.token_hex(3)}"
    client.submit(
        entrypoint="exec python -m llmops_kernel.driver.tell",
        submission_id=submission_id,
        runtime_env=runtime_env(kept_packages(store, record), cluster=cluster),
        metadata={"llmops_user": record.user, MESSAGE_METADATA: json.dumps([name, value])},
    )
    until_s = time.monotonic() + _TELL_S
    while (job := client.get(submission_id)) is not None and not job.is_terminal:
        if time.monotonic() > until_s:
            client.stop(submission_id)
            break
        time.sleep(_POLL_S)
    if job is None or job.status != "SUCCEEDED":
        raise SubmissionError(
            f"The message for run {record.run_id} was not delivered"
            f" ({'the job is gone' if job is None else job.message or job.status})",
            remedy=f"`llmops status {record.cluster}` shows whether the cluster is well; try again",
        )
    log = client.driver_log(job)
    client.delete(submission_id)
    return log


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
        record,
        cluster,
        number=number,
        submitted_s=time.time(),
        resumed_from=checkpoint,
        priority=attempts[-1].priority if attempts else "normal",
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


def reproduce_run(
    store: RunStore, run_id: str, *, cluster: ClusterInfo, client: JobsClient
) -> RunRecord:
    """Submit the kept packages and the config of a run once more, unchanged, as a new run.

    Only a result that the config puts elsewhere goes into the new run's own folder: it would
    replace that of the run. Raises SubmissionError as `retry_run`.
    """
    before = store.record(run_id)
    entrypoint = entrypoint_of(kind_named(before.kind))
    check_waiting(cluster)
    packages = kept_packages(store, before)
    now_s = time.time()
    record = before.model_copy(
        update={
            "run_id": new_run_id(before.name, now_s),
            "created_s": now_s,
            "cluster": cluster.name,
            "provider": cluster.provider,
            "config": _with_own_output(before.config),
            "versions": client_versions(),
            "host": socket.gethostname(),
            "user": user_name(),
            "hardware": hardware_of(cluster),
            "parent": before.run_id,
            "reproduces": before.run_id,
            "sweep": "",
            "agent": None,  # The mark of one submission, with its ticket in the budget.
        }
    )
    attempt = new_attempt(record, cluster, number=1, submitted_s=now_s)
    with submitting(store.root, record.run_id):
        store.create(
            record,
            config_yaml=dump(record.config),
            git_diff=git_diff_of(store, before.run_id),
            notes=RunNotes(tags=(REPRODUCTION,), project=store.notes(before.run_id).project),
        )
        start_attempt(
            record,
            attempt,
            store=store,
            cluster=cluster,
            client=client,
            packages=packages,
            entrypoint=entrypoint,
        )
    return record


def _with_own_output(config: Mapping[str, Any]) -> dict[str, Any]:
    output = config.get("output")
    if not isinstance(output, Mapping) or not output.get("url"):
        return dict(config)
    empty = "" if "part_rows" in output else None
    return {**config, "output": {**output, "url": empty}}


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
