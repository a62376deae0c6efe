"""Ends engines that wait for their next run, through a short Ray job."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass

from llmops_kernel.errors import ClusterError, LLMOpsError
from llmops_kernel.hardware.load import patience_s
from llmops_kernel.jobs.client import Job, JobsClient
from llmops_kernel.store.engine_names import END
from llmops_kernel.store.package.packages import library
from llmops_kernel.store.store import RunStore

_END_S = 90.0
_POLL_S = 0.2
_MONITOR_S = 1.6
"""JOB_MONITOR_LOOP_PERIOD_S of Ray 2.60's job_manager.py, and some time to write."""


@dataclass(frozen=True, kw_only=True)
class EndedEngines:
    """Names of actors, as in `EngineInfo.name`."""

    ended: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    """They have work, so they stay."""


def end_idle_engines(client: JobsClient, *, store: RunStore) -> EndedEngines:
    """End all engines that have no work; return when they have left the cluster.

    Raises ClusterError when the job fails or takes too long.
    """
    package = library(store.packages)
    if not client.package_exists(package.name):
        client.upload_package(package.path, name=package.name)
    submission_id = f"llmops-end-engines-{secrets.token_hex(4)}"
    client.submit(
        entrypoint=END,
        submission_id=submission_id,
        runtime_env={"py_modules": [package.uri]},
        metadata={"llmops": "end-engines"},
    )
    try:
        return _result(client, _ended(client, submission_id))
    finally:
        with suppress(LLMOpsError):
            client.stop(submission_id)
            _forget(client, submission_id)


def _forget(client: JobsClient, submission_id: str) -> None:
    """Take the job out of Ray's list, which is of runs.

    Ray looks once a second whether the job's supervisor lives. If the job is deleted between its
    end and that look, Ray writes it down again, as failed: it is deleted again then.
    """
    client.delete(submission_id)
    until_s = time.monotonic() + patience_s(_MONITOR_S)
    while time.monotonic() < until_s:
        time.sleep(_POLL_S)
        if client.get(submission_id) is not None:
            client.delete(submission_id)
            return


def _ended(client: JobsClient, submission_id: str) -> Job:
    until_s = time.monotonic() + _END_S
    while True:
        job = client.get(submission_id)
        if job is None or job.is_terminal:
            break
        if time.monotonic() > until_s:
            raise ClusterError(
                f"The job that stops engines is {job.status} after {_END_S:.0f} s",
                remedy="the cluster may be busy: see its jobs in the Ray Dashboard, then try again",
            )
        time.sleep(_POLL_S)
    if job is None:
        raise ClusterError(
            f"Ray no longer lists the job {submission_id}", remedy="run the command again"
        )
    return job


def _result(client: JobsClient, job: Job) -> EndedEngines:
    lines = client.driver_log(job).strip().splitlines()
    with suppress(ValueError, TypeError, KeyError, IndexError):
        result = json.loads(lines[-1])
        return EndedEngines(ended=tuple(result["ended"]), busy=tuple(result["busy"]))
    last = lines[-1] if lines else job.message or "without any output"
    raise ClusterError(
        f"The job that stops engines has {job.status}: {last}",
        remedy="`llmops status` shows whether the cluster is ready",
    )
