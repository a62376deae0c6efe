"""What all benchmarks do: have a cluster that is ready, submit a run and wait for its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster, find, is_ready, read_template, up
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.runs import Run

if TYPE_CHECKING:
    from llmops_kernel.config.models.section import RunConfig

_POLL_S = 0.5  # Each poll takes processor time from the run.
_PROCESSES_END_S = 60.0
Report = Callable[[str], None]
Start = Callable[[str], object]
"""Starts the cluster of that name."""


def ready_cluster(
    name: str, config: RunConfig, *, report: Report, start: Start | None, backend: Backend
) -> Cluster:
    """Start the cluster and prepare the model where needed."""
    if not is_ready(name, backend=backend):
        if start is not None:
            start(name)
        else:
            template, path = read_template(name)
            up(template, path=path, wait=True, progress=report, backend=backend)
    if config.model_id:
        prepare_model(config.model_id, progress=report)
    return find(name, backend=backend)


def follow(run: Run, cluster: Cluster, report: Report) -> None:
    """Wait until the run and its processes have ended: they must not slow the next one.

    A benchmark that is interrupted stops its run.
    """
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
