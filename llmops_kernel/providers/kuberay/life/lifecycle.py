"""Actions on an existing RayCluster: suspend, resume, scale, keep, delete."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from llmops_kernel.errors import ClusterError, ClusterStateError
from llmops_kernel.providers.dashboard import described_job, is_active
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.kuberay.api.paths import with_scope
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.providers.kuberay.resource.objects import appliers, owners, text
from llmops_kernel.providers.kuberay.resource.status import (
    NO_LIMIT,
    expected_replicas,
    total_expected_pods,
    worker_groups,
)
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster, fetched
from llmops_kernel.providers.kuberay.state.ray_probe import invalidate_ray, jobs_of
from llmops_kernel.providers.kuberay.waiting.wait import wait_until_ready
from llmops_kernel.providers.protocol import ClusterInfo, Progress

Raw = dict[str, Any]
_TRIES: Final = 5
_GONE_S: Final = 120.0
_OBSERVED_S: Final = 3.0
_patched_s: dict[str, float] = {}
"""Uid of a cluster -> when this process has patched it (monotonic)."""
_LOOK_S: Final = 6.0
"""A GitOps manager that watches the cluster undoes a change within this time (Argo CD: 5 s)."""


def suspend(located: LocatedCluster) -> None:
    """Delete its pods and keep its definition. Under Kueue it is scaled to zero workers instead."""
    if status.queue_of(located.raycluster):
        change(located, _to_zero)
        return
    _merged(located, _suspended())


def suspend_unchanged(located: LocatedCluster) -> None:
    """Suspend it as it was seen. Raises KubeError (Conflict) if it was changed since."""
    is_queued = status.queue_of(located.raycluster)
    patch = _to_zero(copy.deepcopy(dict(located.raycluster))) if is_queued else _suspended()
    if patch:
        _merged(located, _of_version(located, patch))


def resume(located: LocatedCluster) -> None:
    """Restore its replicas, and unset `suspend` unless Kueue owns that."""
    change(located, lambda raycluster: _from_zero(raycluster, now_s=located.kube.clock.now_s()))


def is_observed(located: LocatedCluster) -> bool:
    """Return whether the operator has read this process's newest patch, or has had time for it.

    One that has just read a suspension deletes all pods, and until then its status says ready. One
    that reads suspension and resumption at once changes nothing, and writes no status.
    """
    patched_s = _patched_s.get(located.uid)
    if patched_s is None or not status.generation_behind(located.raycluster):
        return True
    return time.monotonic() - patched_s > _OBSERVED_S


def resume_unasked(located: LocatedCluster) -> None:
    """Resume it for `up`, which asks nobody. Raises ClusterStateError where that ends jobs."""
    waits = bool(status.remembered_replicas(located.raycluster))
    if waits and status.is_replaced_when_resized(located.raycluster):
        active = [described_job(job) for job in jobs_of(located) or () if is_active(job)]
        if active:
            raise ClusterStateError(
                f"Cluster {located.name!r} is scaled to zero workers, and its head runs"
                f" {', '.join(active)}: Kueue replaces the head when the workers come back",
                remedy=f"`llmops resume {located.name}` asks for confirmation and archives the"
                " runs first",
            )
    resume(located)


def scale(located: LocatedCluster, workers: Mapping[str, int]) -> None:
    """Resize groups. Raises ClusterStateError for an unknown group or one beyond its limit."""
    change(located, lambda raycluster: _resized(raycluster, located.name, workers))


def check_scale(located: LocatedCluster, workers: Mapping[str, int]) -> None:
    """Raise what `scale` would. Changes nothing."""
    _resized(copy.deepcopy(dict(located.raycluster)), located.name, workers)


def wait_for_size(
    workers: Mapping[str, int],
    *,
    find: Callable[[], LocatedCluster],
    ask: Callable[[], ClusterInfo],
    report: Progress,
    look_s: float = _LOOK_S,
) -> ClusterInfo:
    """Wait until the groups have that size, and for `look_s` whether a manager sets it back.

    Raises ClusterStateError when somebody does, and what `wait_until_ready` raises.
    """
    located = find()
    may_be_less = status.is_autoscaled(located.raycluster)

    def asked() -> ClusterInfo:
        _require_kept(find(), workers)
        return ask()

    info = wait_until_ready(
        asked,
        located.cache,
        timeout_s=None,
        report=report,
        is_done=lambda info: may_be_less or (info.workers_ready or 0) >= (info.workers_wanted or 0),
    )
    if managers := appliers(located.kube.get(located.path)):
        managers_text = " and ".join(managers)
        report(f"Looking for {look_s:.0f} s whether {managers_text} undoes it")
        deadline_s = time.monotonic() + look_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            located.cache.wait(min(left_s, 0.5))
            info = asked()
    return info


def _require_kept(located: LocatedCluster, workers: Mapping[str, int]) -> None:
    """Raise ClusterStateError if somebody has set other numbers of replicas since `scale`."""
    # Ray's autoscaler sets them itself.
    if status.is_autoscaled(located.raycluster) or not _differing(located.raycluster, workers):
        return
    live = located.kube.get(located.path)  # The watch may be behind our own change.
    if not (now := _differing(live, workers)):
        return
    managers = owners(live, ("spec", "workerGroupSpecs")) or appliers(live)
    manager = " and ".join(managers) or "somebody else"
    requested = ", ".join(f"{group}={count}" for group, count in workers.items())
    current = ", ".join(f"{group}={count}" for group, count in now.items())
    raise ClusterStateError(
        f"Cluster {located.name!r} was scaled to {requested}, and {manager} has set it back to"
        f" {current}",
        remedy=f"change `replicas` in the manifest that {manager} applies, or let it leave"
        " spec.workerGroupSpecs as it is",
    )


def _differing(raycluster: Mapping[str, Any], workers: Mapping[str, int]) -> dict[str, int | None]:
    """Return the replicas of the groups that do not have these; None for a group that is gone."""
    now = {text(group, "groupName"): group for group in worker_groups(raycluster)}
    counts = {
        name: status.number(now[name].get("replicas")) if name in now else None for name in workers
    }
    return {name: count for name, count in counts.items() if count != workers[name]}


def keep(located: LocatedCluster, *, for_s: float) -> None:
    until = None if for_s <= 0 else f"{located.kube.clock.now_s() + for_s:.0f}"
    _merged(located, {"metadata": _annotated({names.KEPT_UNTIL: until})})


def delete(
    located: LocatedCluster,
    *,
    foreground: bool = False,
    is_unchanged: bool = False,
    wait_s: float = _GONE_S,
) -> None:
    """Delete that very cluster, not a newer one of the same name, and wait until it is gone.

    With `is_unchanged`, only as it was seen. Raises ClusterError when something holds it, and
    KubeError.
    """
    version = text(located.raycluster, "metadata", "resourceVersion") if is_unchanged else None
    propagation = "Foreground" if foreground else "Background"
    try:
        located.kube.delete(
            located.path, uid=located.uid, resource_version=version, propagation=propagation
        )
    except KubeError as error:
        if error.code == 404:
            located.cache.drop(located.own_name, uid=located.uid)
            return
        raise
    _wait_until_gone(located, wait_s=wait_s)
    located.cache.drop(located.own_name, uid=located.uid)
    invalidate_ray(located)


def _wait_until_gone(located: LocatedCluster, *, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    pause_s = 0.1
    while (remaining := _current_object(located)) is not None:
        if time.monotonic() > deadline_s:
            raise ClusterError(
                f"Cluster {located.name!r} is still being deleted after {wait_s:.0f} s:"
                f" {status.phase_of(remaining.raycluster).message}",
                remedy=with_scope(
                    f"`kubectl describe raycluster {located.own_name}` shows its finalizers",
                    context=located.scope.context,
                    namespace=located.scope.namespace,
                ),
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 2.0)


def change(located: LocatedCluster, make_patch: Callable[[Raw], Raw]) -> None:
    """Patch a cluster.

    `make_patch` takes the newest object and returns a merge patch; empty for no change.

    A merge patch replaces lists as a whole, so it is valid for that version only and is made again
    if another writer was faster. Raises KubeError.
    """
    raycluster = located.raycluster
    for last in (False,) * (_TRIES - 1) + (True,):
        patch = make_patch(copy.deepcopy(dict(raycluster)))
        if not patch:
            return
        version = raycluster["metadata"].get("resourceVersion")
        patch.setdefault("metadata", {})["resourceVersion"] = version
        try:
            _merged(located, patch)
            return
        except KubeError as error:
            if error.reason != "Conflict" or last:
                raise
        raycluster = located.kube.get(located.path)


def _merged(located: LocatedCluster, patch: Raw) -> None:
    located.cache.put(located.kube.merge(located.path, patch))
    _patched_s[located.uid] = time.monotonic()
    invalidate_ray(located)


def _current_object(located: LocatedCluster) -> LocatedCluster | None:
    now = fetched(located.scope, located.own_name, home=located.home)
    return now if now is not None and now.uid == located.uid else None


def _suspended() -> Raw:
    return {"spec": {"suspend": True}, "metadata": _annotated({names.IDLE_SINCE: None})}


def _of_version(located: LocatedCluster, patch: Raw) -> Raw:
    """Limit the patch to the object as it was seen."""
    meta = located.raycluster["metadata"]
    version = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _to_zero(raycluster: Raw) -> Raw:
    groups = raycluster["spec"].get("workerGroupSpecs") or []
    if not total_expected_pods(raycluster):
        return {}
    before = {
        group["groupName"]: [status.number(group.get("replicas")), _min_replicas(group)]
        for group in groups
    }
    for group in groups:
        group["replicas"] = group["minReplicas"] = 0
        if status.is_autoscaled(raycluster):
            # Else the autoscaler keeps busy pods, and adds some for the next run.
            before[group["groupName"]].append(_max_replicas(group))
            group["maxReplicas"] = 0
    remembered = {names.REPLICAS: json.dumps(before), names.IDLE_SINCE: None}
    return {"spec": _groups_of(raycluster, groups), "metadata": _annotated(remembered)}


def _groups_of(raycluster: Raw, groups: list[Raw]) -> Raw:
    """Return the fields of the spec that give the cluster these worker groups.

    A queued cluster that is not elastic is going to be suspended by Kueue in any case. Without
    `suspend` in the same change, KubeRay creates pods while Kueue deletes them, and then waits
    for minutes for pods that it counts as created.
    """
    spec: Raw = {"workerGroupSpecs": groups}
    if status.is_replaced_when_resized(raycluster):
        spec["suspend"] = True
    return spec


def _from_zero(raycluster: Raw, *, now_s: float) -> Raw:
    patch: Raw = {}
    before = status.remembered_replicas(raycluster)
    if before:
        groups = raycluster["spec"].get("workerGroupSpecs") or []
        for group in groups:
            if group["groupName"] in before:
                group["replicas"], group["minReplicas"], *max_replicas = before[group["groupName"]]
                if max_replicas:
                    group["maxReplicas"] = max_replicas[0]
        patch["spec"] = _groups_of(raycluster, groups)
    if raycluster["spec"].get("suspend") is True and not status.queue_of(raycluster):
        patch.setdefault("spec", {})["suspend"] = False
    if not patch:
        return {}
    patch["metadata"] = _annotated(
        {
            names.REPLICAS: None,
            names.IDLE_SINCE: None,
            names.RESUMED_AT: f"{now_s:.0f}",
        }
    )
    return patch


def _resized(raycluster: Raw, name: str, workers: Mapping[str, int]) -> Raw:
    groups = raycluster["spec"].get("workerGroupSpecs") or []
    by_name = {group["groupName"]: group for group in groups}
    for group_name, replicas in workers.items():
        group = by_name.get(group_name)
        if group is None:
            group_names = ", ".join(by_name) or "none"
            raise ClusterStateError(
                f"Cluster {name!r} has no worker group {group_name!r}; known: {group_names}",
                remedy=f"llmops status {name}",
            )
        _refuse_outside(name, group, replicas)
        if status.is_autoscaled(raycluster):
            _refuse_fewer(name, group, replicas)
    if all(status.number(by_name[group].get("replicas")) == n for group, n in workers.items()):
        return {}
    for group_name, replicas in workers.items():
        by_name[group_name]["replicas"] = replicas
    return {"spec": _groups_of(raycluster, groups)}


def _refuse_outside(name: str, group: Raw, replicas: int) -> None:
    least, upper = _min_replicas(group), _max_replicas(group)
    if not least <= replicas <= upper:
        raise ClusterStateError(
            f"Worker group {group['groupName']!r} of cluster {name!r} may have {least} to {upper}"
            f" replicas, not {replicas}",
            remedy="other bounds are set in the cluster template (`min_replicas`,"
            " `max_replicas`): `llmops cluster apply`",
        )


def _refuse_fewer(name: str, group: Raw, replicas: int) -> None:
    """Raise for fewer replicas: with the autoscaler KubeRay removes only the pods that it names."""
    now = expected_replicas(group)
    if replicas < now:
        raise ClusterStateError(
            f"Worker group {group['groupName']!r} of cluster {name!r} has {now} replicas, and only"
            f" Ray's autoscaler removes some, when they are idle: {replicas} would have no effect",
            remedy="wait until they are idle, or lower `max_replicas` in the cluster template:"
            " `llmops cluster apply`",
        )


def _min_replicas(group: Mapping[str, Any]) -> int:
    return status.number(group.get("minReplicas"))


def _max_replicas(group: Mapping[str, Any]) -> int:
    return status.number(group.get("maxReplicas", NO_LIMIT))


def _annotated(annotations: Mapping[str, str | None]) -> Raw:
    return {"annotations": dict(annotations)}
