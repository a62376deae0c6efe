"""Reasons why a pod has no node: volumes, labels, taints, capacity. Needs visible nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from llmops_kernel.providers.kuberay.fit.node_fit import Amounts, Node, requests_of, why_not
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation, newest
from llmops_kernel.providers.kuberay.fit.queues import full_queue_text
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    condition,
    event_text,
    fields,
    name_of,
    objects,
    one_line,
    short,
    shown,
    text,
)
from llmops_kernel.providers.protocol import Waiting

_CLAIM: Final = re.compile(r"persistentvolumeclaim \"(?P<name>[^\"]+)\" not found")
_PREEMPTION: Final = re.compile(r"\s*(?:no new claims to deallocate,)?\s*preemption:")
"""Where the scheduler's sentence turns to other pods; that of 1.36 names claims too."""
_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_ZONE: Final = "volume node affinity conflict"
_ZERO: Final = Decimal(0)


def unscheduled_reason(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    if text(pod, "spec", "nodeName"):
        return None
    reported = condition(pod, "PodScheduled")
    if gates := [text(gate, "name") for gate in objects(pod, "spec", "schedulingGates")]:
        return Waiting(
            message=f"its pods have the scheduling gates {', '.join(gates)}",
            remedy="the controller that set a gate removes it; Kueue does so when it admits the"
            " workload",
            kind="queue",
        )
    message = text(reported, "message") or _failed(pod, observation)
    return (
        _volume(pod, message, observation)
        or _capacity_reason(pod, message, observation)
        or (_from_scheduler(message) if message else None)
    )


def _failed(pod: Obj, observation: ClusterObservation) -> str:
    event = newest(observation.events_about(pod, kind="Pod"), "FailedScheduling")
    return event_text(event) if event else ""


def _from_scheduler(message: str) -> Waiting:
    return Waiting(
        message=f"the scheduler found no node: {one_line(_PREEMPTION.split(message)[0])}",
        remedy="correct in the template what the message names: cpus, memory, gpus,"
        " node_selector, tolerations of the group",
        kind="capacity",
    )


# Volumes


def _volume(pod: Obj, message: str, observation: ClusterObservation) -> Waiting | None:
    if match := _CLAIM.search(message):
        return _no_claim(match["name"])
    if _ZONE in message:
        return Waiting(
            message="its volume is in a zone where no node has free capacity for the pod",
            remedy="select nodes of the volume's zone with node_selector, or use another claim",
            kind="volume",
            is_stuck=True,
        )
    claims = [
        text(volume, "persistentVolumeClaim", "claimName")
        for volume in objects(pod, "spec", "volumes")
    ]
    for name in filter(None, claims):
        claim = next((c for c in observation.pvcs or () if name_of(c) == name), None)
        if claim is None and observation.pvcs is not None:
            return _no_claim(name)
        if claim is not None and (found_cause := claim_reason(claim, observation)):
            return found_cause
    if _UNBOUND in message:
        return Waiting(
            message="a volume claim of the pod is not bound yet",
            remedy="`kubectl describe pvc` shows why",
            kind="volume",
        )
    return None


def _no_claim(name: str) -> Waiting:
    return Waiting(
        message=f"there is no PersistentVolumeClaim {name} in the namespace",
        remedy="create it, or use another `claim` in storage.volumes of the template",
        kind="volume",
        is_stuck=True,
    )


def claim_reason(claim: Obj, observation: ClusterObservation) -> Waiting | None:
    """Return why a claim is not bound; None if it is, or if it only waits for its first pod."""
    name, phase = name_of(claim), text(claim, "status", "phase")
    if phase == "Lost":
        return Waiting(
            message=f"volume claim {name} has lost its volume",
            remedy="ask an administrator to restore the PersistentVolume, or use another claim",
            kind="volume",
            is_stuck=True,
        )
    if phase != "Pending":
        return None
    event = next(iter(observation.events_about(claim, kind="PersistentVolumeClaim")), None)
    reason, detail = text(event, "reason"), one_line(event_text(event or {}))
    if reason == "WaitForFirstConsumer":
        return None
    storage = text(claim, "spec", "storageClassName")
    of_class = f" of storage class {storage}" if storage else ""
    is_stuck = reason in ("ProvisioningFailed", "FailedBinding")
    return Waiting(
        message=f"volume claim {name}{of_class} is not bound{f': {detail}' if detail else ''}",
        remedy="use an existing storage class with free space (`kubectl get storageclass`)",
        kind="volume",
        is_stuck=is_stuck,
    )


# Capacity


def _capacity_reason(pod: Obj, message: str, observation: ClusterObservation) -> Waiting | None:
    """Return the reason, computed once for all pods with the same requests."""
    if observation.nodes_with_capacity is None or not message:
        return None
    spec, scaling = fields(pod, "spec"), _autoscaler(pod, observation)
    requested = requests_of(spec)
    placement = [spec.get(part) for part in ("nodeSelector", "affinity", "tolerations")]
    key = repr((sorted(requested.items()), placement, scaling))
    if key not in observation.computed_reasons:
        observation.computed_reasons[key] = _compute_capacity_reason(
            spec, requested, observation, observation.nodes_with_capacity, scaling
        )
    return observation.computed_reasons[key]


def _compute_capacity_reason(
    spec: Obj,
    requested: Amounts,
    observation: ClusterObservation,
    nodes: Sequence[Node],
    scaling: Waiting | None,
) -> Waiting | None:
    if not nodes:
        return _capacity("the cluster has no nodes", scaling)
    obstacles = {node.name: why_not(spec, node.obj) for node in nodes}
    open_nodes = [node for node in nodes if not obstacles[node.name]]
    if not open_nodes:
        return _capacity(_excluded(obstacles), scaling, _PLACE)
    large = [node for node in open_nodes if node.has(requested)]
    closed = Counter(obstacle for obstacle in obstacles.values() if obstacle)
    if not large:
        return _capacity(_too_small(open_nodes, requested, closed), scaling)
    if any(node.free is None for node in large) or any(node.fits(requested) for node in large):
        return None  # Capacity is not the cause: the scheduler's message says more.
    return _occupied_reason(large, requested, observation, scaling)


_PLACE: Final = "change node_selector, tolerations or affinity of the group in the template"
_SMALLER: Final = "request less in the template, or ask an administrator to add larger nodes"


def _capacity(message: str, scaling: Waiting | None, remedy: str = _SMALLER) -> Waiting:
    """Add what the autoscaler does: new nodes end the wait, otherwise it is reported."""
    if scaling is None:
        return Waiting(message=message, remedy=remedy, kind="capacity", is_stuck=True)
    return Waiting(
        message=f"{message}; {scaling.message}",
        remedy=scaling.remedy or remedy,
        kind="capacity",
        is_stuck=scaling.is_stuck,
    )


def _excluded(obstacles: dict[str, str]) -> str:
    reasons = Counter(obstacles.values())
    parts = [
        f"{count} {_nodes(count)} {_verb(obstacle, count)}"
        for obstacle, count in reasons.most_common(3)
    ]
    return f"no node accepts the pod: {', '.join(parts)}"


def _verb(obstacle: str, count: int) -> str:
    """Turn it into a phrase: `has no label x` is one already, `not ready` needs a verb."""
    if obstacle.startswith("has ") and count > 1:
        return f"have {obstacle.removeprefix('has ')}"
    if obstacle.startswith("does not") and count > 1:
        return f"do not{obstacle.removeprefix('does not')}"
    return (
        obstacle
        if obstacle.startswith(("has ", "does not"))
        else f"{'is' if count == 1 else 'are'} {obstacle}"
    )


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"


def _too_small(nodes: Sequence[Node], requested: Amounts, closed: Counter[str]) -> str:
    name = _scarcest(nodes, requested)
    best = max(nodes, key=lambda node: node.allocatable.get(name, _ZERO))
    allocatable = best.allocatable.get(name, _ZERO)
    if allocatable >= requested[name]:
        amounts = ", ".join(shown(key, value) for key, value in requested.items())
        line = f"no node has {amounts} together"
    else:
        line = f"no node has {shown(name, requested[name])}"
        line += (
            f" (the largest, {best.name}, has {short(name, allocatable)})" if allocatable else ""
        )
    if closed:
        obstacle, count = closed.most_common(1)[0]
        line += f"; {count} {_nodes(count)} {_verb(obstacle, count)}"
    return line


def _occupied_reason(
    nodes: Sequence[Node],
    requested: Amounts,
    observation: ClusterObservation,
    scaling: Waiting | None,
) -> Waiting:
    name = _scarcest_free(nodes, requested)
    best = max(nodes, key=lambda node: (node.free or {}).get(name, _ZERO))
    free, total = (best.free or {}).get(name, _ZERO), best.allocatable.get(name, _ZERO)
    line = f"no node has {short(name, requested.get(name, Decimal(1)))} free {name}"
    line += f" (the best, {best.name}, has {short(name, max(_ZERO, free))} of {short(name, total)})"
    if queue := full_queue_text(observation, name):
        line += f"; {queue}"
    if scaling is not None:
        line += f"; {scaling.message}"
    return Waiting(
        message=line,
        remedy=(scaling.remedy if scaling else "")
        or "wait until other workloads end, suspend a cluster (`llmops ls`), or request less",
        kind="capacity",
        is_stuck=False,
    )


def _scarcest(nodes: Sequence[Node], requested: Amounts) -> str:
    """Return the resource with the fewest nodes large enough; among equals an accelerator."""

    def fit(name: str) -> tuple[int, bool]:
        num_enough = sum(node.allocatable.get(name, _ZERO) >= requested[name] for node in nodes)
        return num_enough, "/" not in name

    return min(requested, key=fit)


def _scarcest_free(nodes: Sequence[Node], requested: Amounts) -> str:
    def fit(name: str) -> tuple[int, bool]:
        num_enough = sum((node.free or {}).get(name, _ZERO) >= requested[name] for node in nodes)
        return num_enough, "/" not in name

    return min(requested, key=fit, default="pods")


# Autoscaler


def _autoscaler(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    """Return what the cluster's own autoscaler (not Ray's) reported about the pod."""
    reasons = ("TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp", "Nominated")
    event = newest(observation.events_about(pod, kind="Pod"), *reasons)
    if event is None:
        return None
    reason, detail = text(event, "reason"), one_line(event_text(event))
    if reason in ("TriggeredScaleUp", "Nominated"):
        groups = re.search(r"\[.*\]", detail)
        added = f" ({groups[0]})" if groups else ""
        return Waiting(
            message=f"the autoscaler is adding nodes{added}", remedy="wait a few minutes"
        )
    if reason == "FailedScaleUp":
        return Waiting(
            message=f"the autoscaler could not add nodes: {detail}",
            remedy="the cloud provider has no capacity now: wait, or try another zone or context",
        )
    detail = detail.partition(": ")[2] or detail
    return Waiting(
        message=f"the autoscaler will not add nodes: {detail}",
        remedy="ask an administrator to raise the maximum of the node pool, or request what its"
        " nodes have",
        is_stuck=True,
    )
