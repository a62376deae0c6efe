"""What guards read of a RayCluster and write down in it, so that several do no harm."""

from __future__ import annotations

import time
from typing import Final

from llmops_kernel.clusters.dashboard import Dashboard
from llmops_kernel.clusters.kuberay import names, status
from llmops_kernel.clusters.kuberay.changing import delete, suspend
from llmops_kernel.clusters.kuberay.describing import pods_of_cluster
from llmops_kernel.clusters.kuberay.finding import Found, fetched
from llmops_kernel.clusters.kuberay.guard import (
    Act,
    Activity,
    GuardState,
    activity,
    decide,
    watched,
)
from llmops_kernel.clusters.kuberay.kube import KubeError
from llmops_kernel.clusters.kuberay.objects import fields, labels, objects, text
from llmops_kernel.clusters.kuberay.ray_probe import connection_of
from llmops_kernel.errors import LLMOpsError

_ASK_S: Final = 10.0
_TRIES: Final = 3
_NOTE_S: Final = 60.0
"""Idle times that differ by less are the same: several guards must not write in turns."""


def look(found: Found) -> GuardState | None:
    """Asks Ray what runs; None for a cluster that has no policy. Raises nothing for silence."""
    cluster = watched(found.raycluster)
    if cluster is None:
        return None
    now = activity_of(found) if cluster.is_up else Activity(False)
    return decide(cluster, now, now_s=time.time())


def activity_of(found: Found) -> Activity:
    try:
        with Dashboard(connection_of(found), timeout_s=_ASK_S) as dashboard:
            jobs, activities = dashboard.jobs(), dashboard.activities()
    except LLMOpsError:
        return Activity(None)
    return activity(jobs, activities, ready_s=status.ready_since_s(found.raycluster))


def note(found: Found, state: GuardState) -> None:
    """Writes down since when it is idle, for whoever lists clusters; a lost race is no fault."""
    known = status.seconds_of(found.raycluster, names.IDLE_SINCE)
    now = state.idle_since_s
    if known == now or (known and now and abs(known - now) < _NOTE_S):
        return
    value = None if now is None else f"{now:.0f}"
    try:
        found.cache.put(found.kube.merge(found.path, _guarded(found, {names.IDLE_SINCE: value})))
    except KubeError as error:
        if error.reason not in ("Conflict", "NotFound"):
            raise


def _guarded(found: Found, annotations: dict[str, str | None]) -> dict[str, object]:
    """Only for the object as it was seen: somebody may have kept or changed it meanwhile."""
    meta = found.raycluster["metadata"]
    return {
        "metadata": {
            "annotations": annotations,
            "uid": meta.get("uid"),
            "resourceVersion": meta.get("resourceVersion"),
        }
    }


def act(found: Found, state: GuardState) -> bool:
    """Looks again, then suspends or deletes that very object as it was seen.

    False when it is no longer so: another guard was faster, somebody kept it or works on it.
    """
    for _ in range(_TRIES):
        fresh = fetched(found.place, found.own_name, label=found.name)
        if fresh is None or fresh.uid != found.uid:
            return False
        again = look(fresh)
        if again is None or again.act is not state.act:
            return False
        if _acted(fresh, state.act):
            return True
    return False


def _acted(found: Found, what: Act) -> bool:
    """False when somebody changed it in the last moment."""
    if what is Act.DELETE:
        delete(found)
        return True
    if status.queue_of(found.raycluster):
        suspend(found)  # Kueue owns `suspend`: to zero workers, held to this version already.
        return True
    patch = {**_guarded(found, {names.IDLE_SINCE: None}), "spec": {"suspend": True}}
    try:
        found.cache.put(found.kube.merge(found.path, patch))
    except KubeError as error:
        if error.reason == "Conflict":
            return False
        raise
    return True


def head_is_gone(found: Found) -> bool:
    """No container of Ray's head runs, so what it had in its pod is lost already."""
    pods = pods_of_cluster(found)
    if pods is None:
        return False
    heads = [
        pod
        for pod in pods
        if labels(pod, "metadata", "labels").get(names.RAY_NODE_TYPE_LABEL) == "head"
    ]
    return not any(_runs(pod) for pod in heads)


def _runs(pod: object) -> bool:
    if text(pod, "status", "phase") in ("Failed", "Succeeded"):
        return False
    statuses = objects(pod, "status", "containerStatuses")
    if not statuses:
        return text(pod, "status", "phase") == "Running"
    return bool(fields(statuses[0], "state", "running"))
