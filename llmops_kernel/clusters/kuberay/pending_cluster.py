"""What keeps a RayCluster as a whole from being worked on: deletion, namespace, operator."""

from __future__ import annotations

from typing import Final

from llmops_kernel.clusters.kuberay.objects import (
    Obj,
    dig,
    event_text,
    fields,
    objects,
    one_line,
    text,
    texts,
    time_s,
    whole,
)
from llmops_kernel.clusters.kuberay.status import is_behind
from llmops_kernel.clusters.kuberay.world import World
from llmops_kernel.clusters.provider import Waiting

OPERATOR_PATIENCE_S: Final = 10.0
"""The operator writes a first status within a tenth of a second."""
_DELETE_PATIENCE_S: Final = 30.0
_OPERATOR: Final = ("raycluster-controller", "raycluster-controller-manager")


def leaving(world: World) -> list[Waiting]:
    """It is being deleted, or its namespace is."""
    since_s = time_s(dig(world.raycluster, "metadata", "deletionTimestamp"))
    if since_s is not None:
        return [_deleted(world, since_s)]
    if text(world.namespace, "status", "phase") != "Terminating":
        return []
    name = text(world.raycluster, "metadata", "namespace")
    why = [
        one_line(text(item, "message"))
        for item in objects(world.namespace, "status", "conditions")
        if item.get("status") == "True" and text(item, "message")
    ]
    return [
        Waiting(
            message=f"namespace {name} is being deleted{f': {why[0]}' if why else ''}",
            remedy="wait until it is gone and make it anew, or take another namespace",
            kind="namespace",
            is_stuck=True,
        )
    ]


def _deleted(world: World, since_s: float) -> Waiting:
    passed_s = max(0.0, world.now_s - since_s)
    finalizers = texts(world.raycluster, "metadata", "finalizers")
    listed = ", ".join(finalizers)
    line = f"it is being deleted for {passed_s:.0f} s"
    if not finalizers:
        count = len(world.pods)
        pods = f"; {count} pod{'' if count == 1 else 's'} left" if count else ""
        return Waiting(message=f"{line}{pods}", kind="deletion")
    remedy = "the operator takes it off once Redis is cleaned up (at most 5 min)"
    if not any("gcs-ft" in name for name in finalizers):
        remedy = f"whoever set {listed} takes it off; an admin can with `kubectl edit`"
    return Waiting(
        message=f"{line}; finalizer {listed} holds it",
        remedy=remedy,
        kind="deletion",
        is_stuck=passed_s > 10 * _DELETE_PATIENCE_S,
    )


def unattended(world: World) -> list[Waiting]:
    """The operator refused the spec, is behind, or is not there."""
    if world.is_elsewhere:
        return []
    generation = whole(world.raycluster, "metadata", "generation")
    observed = whole(world.raycluster, "status", "observedGeneration")
    has_status = bool(fields(world.raycluster, "status"))
    if has_status and (observed is None or generation is None or observed >= generation):
        return []
    if refused := _refused(world, is_new=not has_status):
        return [refused]
    if not has_status:
        return _absent(world)
    if not is_behind(world.raycluster):
        return []
    return [
        Waiting(
            message=f"the operator has not looked at the newest change yet (it is at"
            f" {observed} of {generation})",
            remedy="wait a moment; if it stays so, see the log of the KubeRay operator",
            kind="operator",
        )
    ]


def _refused(world: World, *, is_new: bool) -> Waiting | None:
    """Later on, only what is about the spec: a pod that could not be made has its own words."""
    for event in world.own_events():
        reason = text(event, "reason")
        if text(event, "type") != "Warning" or not _by_operator(event):
            continue
        if not is_new and not reason.startswith("Invalid") and reason not in _REMEDIES:
            continue
        return Waiting(
            message=f"the operator refuses the spec ({reason}): {one_line(event_text(event))}",
            remedy=_REMEDIES.get(reason, "change what it names in the template, then apply it"),
            kind="operator",
            is_stuck=True,
        )
    return None


_REMEDIES: Final = {
    "AutoscalerServiceAccountNotFound": "make the ServiceAccount that service_account names, or"
    " take it out of the template",
    "InvalidRayClusterMetadata": "a shorter or simpler name: at most 53 lower-case letters, digits"
    " and dashes, beginning with a letter",
}


def _by_operator(event: Obj) -> bool:
    """Kueue writes about RayClusters too."""
    by = text(event, "reportingComponent") or text(event, "reportingController")
    by = by or text(event, "source", "component")
    return not by or by in _OPERATOR or "raycluster" in by


def _absent(world: World) -> list[Waiting]:
    age_s = world.age_s
    if age_s is None or age_s < OPERATOR_PATIENCE_S or any(map(_by_operator, world.own_events())):
        return [Waiting(message="the operator has not looked at it yet", kind="progress")]
    seen = world.events is not None
    return [
        Waiting(
            message=f"no operator has looked at it in {age_s:.0f} s: it has no status"
            + (" and no event" if seen else ""),
            remedy="install KubeRay's operator (`helm install kuberay-operator"
            " kuberay/kuberay-operator`), or have it watch this namespace",
            kind="operator",
            is_stuck=True,
        )
    ]
