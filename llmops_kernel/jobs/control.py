"""Stops runs and tries them again."""

from __future__ import annotations

import time

from llmops_kernel.clusters.provider import ClusterInfo
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.errors import RunStateError, SubmissionError
from llmops_kernel.jobs.aside import add_aside
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.submit import Handover, PackageFile, hand_over, place_of
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.runs.record import Attempt, RunRecord
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.view import STOP_PHASE, RunView


def stop_run(store: RunStore, run_id: str, *, client: JobsClient) -> bool:
    """Ask for a stop and return at once; the run saves a checkpoint first.

    False when there was nothing left to stop.
    """
    run_id = store.resolve(run_id)
    attempt = _last_attempt(store, run_id)
    if _is_over(store.view(run_id), attempt) or not client.stop(attempt.submission_id):
        return False
    event = PhaseEvent(name=STOP_PHASE, state="begin", detail="asked for by the user")
    add_aside(store.folder(run_id).journal, event, attempt=attempt.number)
    return True


def retry_run(store: RunStore, run_id: str, *, cluster: ClusterInfo, client: JobsClient) -> Attempt:
    """A new attempt of the same record and the same packages; goes on from its checkpoint.

    Raises RunStateError while an attempt runs.
    """
    run_id = store.resolve(run_id)
    record, view = store.record(run_id), store.view(run_id)
    attempts = store.attempts(run_id)
    if attempts and not _is_over(view, attempts[-1]):
        raise RunStateError(
            f"Run {run_id} is {view.state}; only an ended run can be tried again",
            remedy="`run.stop()` first, or `run.resubmit(...)` for a second run beside it",
        )
    packages = kept_packages(store, record)
    number = attempts[-1].number + 1 if attempts else 1
    attempt = Attempt(
        number=number,
        submission_id=f"{run_id}-{number}",
        cluster=cluster.name,
        dashboard_url=cluster.dashboard_url or "",
        place=place_of(cluster),
        submitted_s=time.time(),
        resumed_from=view.checkpoints[-1].path if view.checkpoints else None,
    )
    store.add_attempt(run_id, attempt)
    config = TrainingConfig.model_validate(record.config)
    handover = Handover(store=store, record=record, attempt=attempt, config=config, cluster=cluster)
    with handover.journal() as journal:
        hand_over(handover, packages=packages, client=client, journal=journal)
    return attempt


def kept_packages(store: RunStore, record: RunRecord) -> list[PackageFile]:
    """The packages that the run was submitted with. Raises SubmissionError without them."""
    hashes = {
        "code": record.code_hash,
        "library": record.package_hash,
        "assets": record.assets_hash,
    }
    found = []
    for role, hash_ in hashes.items():
        if not hash_:
            continue
        path = store.packages / f"{hash_}.zip"
        if not path.exists():
            raise SubmissionError(
                f"The {role} of run {record.run_id} is no longer kept ({path})",
                remedy="`run.resubmit()` starts a new run from what the workspace is now",
            )
        found.append(PackageFile(role=role, name=f"_ray_pkg_{hash_}.zip", path=path))
    return found


def _last_attempt(store: RunStore, run_id: str) -> Attempt:
    attempts = store.attempts(run_id)
    if not attempts:
        raise RunStateError(
            f"Run {run_id} has not been handed to a cluster yet", remedy="try again in a moment"
        )
    return attempts[-1]


def _is_over(view: RunView, attempt: Attempt) -> bool:
    return view.is_terminal and view.attempt >= attempt.number
