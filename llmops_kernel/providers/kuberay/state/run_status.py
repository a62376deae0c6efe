"""The newest run as annotations of its RayCluster, for `kubectl get raycluster`."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.providers.capabilities import RunStatus
from llmops_kernel.providers.kuberay.api import rights
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster

AGAIN_S: Final = 12.0
"""Several clients may follow a run: one writes, and the others see that it has."""
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def show(located: LocatedCluster, shown: RunStatus) -> bool:
    """Write the annotations in one merge patch; False if this user may not.

    KubeRay reads the cluster again at each change of an annotation, and changes nothing then.
    """
    kube = located.kube
    if rights.PATCH in rights.missing(kube, located.scope.namespace):
        return False
    now_s = kube.clock.now_s()
    if not is_due(located.raycluster, shown, now_s=now_s):
        return True
    annotations = {
        names.RUN: shown.run,
        names.RUN_STATE: shown.state,
        names.RUN_STEP: shown.step or None,
        names.RUN_LOSS: shown.loss or None,
        names.RUN_TIME_LEFT: shown.time_left or None,
        names.RUN_SUBMITTED: f"{shown.submitted_s:.3f}",
        names.RUN_UPDATED: datetime.fromtimestamp(now_s, UTC).strftime(_FORMAT),
    }
    # With its uid: another cluster of the same name knows nothing of this run.
    body = {"metadata": {"annotations": annotations, "uid": located.uid}}
    try:
        located.cache.put(kube.merge(located.path, body))
    except KubeDenied:
        return False
    except KubeError as error:
        if error.reason not in ("Conflict", "NotFound"):
            raise
    return True


def is_due(raycluster: Any, shown: RunStatus, *, now_s: float) -> bool:
    """Return whether the cluster shows something older than `shown`."""
    run = status.annotation(raycluster, names.RUN)
    submitted_s = status.seconds_of(raycluster, names.RUN_SUBMITTED) or 0.0
    if run != shown.run:
        return not shown.was_over and shown.submitted_s > submitted_s
    if shown.submitted_s < submitted_s - 0.001:  # Of an earlier attempt.
        return False
    state = status.annotation(raycluster, names.RUN_STATE)
    if shown.submitted_s > submitted_s + 0.001:
        return True
    if state in TERMINAL:
        return False
    if state != shown.state:
        return True
    updated_s = 0.0
    with suppress(ValueError):
        updated = datetime.fromisoformat(status.annotation(raycluster, names.RUN_UPDATED))
        updated_s = updated.timestamp()
    return now_s - updated_s >= AGAIN_S
