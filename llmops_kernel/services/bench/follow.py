"""Waits for a run of a benchmark, and stops it when the benchmark is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run

_POLL_S = 0.5  # Each poll takes processor time from the run.
_PROCESSES_END_S = 60.0
Report = Callable[[str], None]


def follow(run: Run, cluster: Cluster, report: Report) -> None:
    """Wait until the run and its processes have ended: they must not slow the next one."""
    try:
        _wait(run, cluster)
    except KeyboardInterrupt:
        report(f"stopping {run.id}")
        with suppress(LLMOpsError, KeyboardInterrupt):
            run.stop()
        raise


def _wait(run: Run, cluster: Cluster) -> None:
    while not run.has_ended:
        time.sleep(_POLL_S)
    job = run.attempts[-1].submission_id
    deadline_s = time.monotonic() + _PROCESSES_END_S
    with cluster.client() as client:
        while time.monotonic() < deadline_s:
            seen = client.get(job)
            if seen is None or seen.is_terminal:
                return
            time.sleep(_POLL_S)
