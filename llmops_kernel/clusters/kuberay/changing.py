"""What is done to a RayCluster that is there: suspend, resume, scale, keep, delete."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from llmops_kernel.clusters.kuberay import names, status
from llmops_kernel.clusters.kuberay.finding import Found, fetched
from llmops_kernel.clusters.kuberay.kube import KubeError
from llmops_kernel.clusters.kuberay.ray_probe import forget_ray
from llmops_kernel.errors import ClusterError, ClusterStateError

Raw = dict[str, Any]
_TRIES: Final = 5
_GONE_S: Final = 120.0


def suspend(found: Found) -> None:
    """Its pods go, its definition stays. Under Kueue it is scaled to zero workers instead."""
    if status.queue_of(found.raycluster):
        change(found, _to_zero)
        return
    patch = {"spec": {"suspend": True}, "metadata": _annotated({names.IDLE_SINCE: None})}
    _merged(found, patch)


def resume(found: Found) -> None:
    """As it was before: its replicas, and `suspend` unless that is Kueue's."""
    change(found, _from_zero)


def scale(found: Found, workers: Mapping[str, int]) -> None:
    """Raises ClusterStateError for a group that is not there or may not be so large."""
    change(found, lambda raycluster: _resized(raycluster, found.name, workers))


def keep(found: Found, *, for_s: float) -> None:
    until = None if for_s <= 0 else f"{time.time() + for_s:.0f}"
    _merged(found, {"metadata": _annotated({names.KEPT_UNTIL: until})})


def delete(found: Found, *, foreground: bool = False, wait_s: float = _GONE_S) -> None:
    """That very cluster, and not one of the same name made since; waits until it is gone.

    Raises ClusterError when something holds it.
    """
    propagation = "Foreground" if foreground else "Background"
    try:
        found.kube.delete(found.path, uid=found.uid, propagation=propagation)
    except KubeError as error:
        if error.code == 404:
            found.cache.drop(found.own_name, uid=found.uid)
            return
        raise
    deadline_s = time.monotonic() + wait_s
    pause_s = 0.1
    while (left := _same(found)) is not None:
        if time.monotonic() > deadline_s:
            raise ClusterError(
                f"Cluster {found.name!r} is still being deleted after {wait_s:.0f} s:"
                f" {status.phase_of(left.raycluster).message}",
                remedy=f"kubectl --context {found.place.context} -n {found.place.namespace}"
                f" describe raycluster {found.own_name}",
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 2.0)
    found.cache.drop(found.own_name, uid=found.uid)
    forget_ray(found)


def change(found: Found, make: Callable[[Raw], Raw]) -> None:
    """`make` gets the newest object and gives a merge patch; empty when nothing is to do.

    Lists are replaced whole by a merge patch, so it holds for that version only and is made
    again when somebody else was faster. Raises KubeError.
    """
    raycluster = found.raycluster
    for last in (False,) * (_TRIES - 1) + (True,):
        patch = make(copy.deepcopy(dict(raycluster)))
        if not patch:
            return
        version = raycluster["metadata"].get("resourceVersion")
        patch.setdefault("metadata", {})["resourceVersion"] = version
        try:
            _merged(found, patch)
            return
        except KubeError as error:
            if error.reason != "Conflict" or last:
                raise
        raycluster = found.kube.get(found.path)


def _merged(found: Found, patch: Raw) -> None:
    found.cache.put(found.kube.merge(found.path, patch))
    forget_ray(found)


def _same(found: Found) -> Found | None:
    now = fetched(found.place, found.own_name)
    return now if now is not None and now.uid == found.uid else None


def _to_zero(raycluster: Raw) -> Raw:
    groups = raycluster["spec"].get("workerGroupSpecs") or []
    if not status.workers_wanted(raycluster):
        return {}
    before = {
        group["groupName"]: [status.number(group.get("replicas")), _least(group)]
        for group in groups
    }
    for group in groups:
        group["replicas"] = group["minReplicas"] = 0
    remembered = {names.REPLICAS: json.dumps(before), names.IDLE_SINCE: None}
    return {"spec": {"workerGroupSpecs": groups}, "metadata": _annotated(remembered)}


def _from_zero(raycluster: Raw) -> Raw:
    patch: Raw = {}
    before = status.remembered_replicas(raycluster)
    if before:
        groups = raycluster["spec"].get("workerGroupSpecs") or []
        for group in groups:
            if group["groupName"] in before:
                group["replicas"], group["minReplicas"] = before[group["groupName"]]
        patch["spec"] = {"workerGroupSpecs": groups}
    if raycluster["spec"].get("suspend") is True and not status.queue_of(raycluster):
        patch.setdefault("spec", {})["suspend"] = False
    if not patch:
        return {}
    patch["metadata"] = _annotated(
        {
            names.REPLICAS: None,
            names.IDLE_SINCE: None,
            names.RESUMED_AT: f"{time.time():.0f}",
        }
    )
    return patch


def _resized(raycluster: Raw, name: str, workers: Mapping[str, int]) -> Raw:
    groups = raycluster["spec"].get("workerGroupSpecs") or []
    by_name = {group["groupName"]: group for group in groups}
    for group_name, replicas in workers.items():
        group = by_name.get(group_name)
        if group is None:
            known = ", ".join(by_name) or "none"
            raise ClusterStateError(
                f"Cluster {name!r} has no worker group {group_name!r}; known: {known}",
                remedy=f"llmops status {name}",
            )
        _refuse_outside(name, group, replicas)
    if all(status.number(by_name[one].get("replicas")) == n for one, n in workers.items()):
        return {}
    for group_name, replicas in workers.items():
        by_name[group_name]["replicas"] = replicas
    return {"spec": {"workerGroupSpecs": groups}}


def _refuse_outside(name: str, group: Raw, replicas: int) -> None:
    least, most = _least(group), group.get("maxReplicas", 2**31 - 1)
    if not least <= replicas <= most:
        raise ClusterStateError(
            f"Worker group {group['groupName']!r} of cluster {name!r} may have {least} to {most}"
            f" replicas, not {replicas}",
            remedy="other bounds are set in the cluster template (`min_replicas`,"
            " `max_replicas`): `llmops cluster apply`",
        )


def _least(group: Mapping[str, Any]) -> int:
    return status.number(group.get("minReplicas"))


def _annotated(annotations: Mapping[str, str | None]) -> Raw:
    return {"annotations": dict(annotations)}
