"""Why a pod has no node: volumes, labels, taints, room; computed where nodes can be seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from llmops_kernel.clusters.kuberay.objects import (
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
from llmops_kernel.clusters.kuberay.queue_use import full_queue
from llmops_kernel.clusters.kuberay.room import Amounts, Node, requests_of, why_not
from llmops_kernel.clusters.kuberay.world import World, newest
from llmops_kernel.clusters.provider import Waiting

_CLAIM: Final = re.compile(r"persistentvolumeclaim \"(?P<name>[^\"]+)\" not found")
_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_ZONE: Final = "volume node affinity conflict"
_ZERO: Final = Decimal(0)


def unscheduled_cause(pod: Obj, world: World) -> Waiting | None:
    if text(pod, "spec", "nodeName"):
        return None
    told = condition(pod, "PodScheduled")
    if gates := [text(gate, "name") for gate in objects(pod, "spec", "schedulingGates")]:
        return Waiting(
            message=f"its pods are held back by {', '.join(gates)}",
            remedy="whoever set the gate lifts it; Kueue does when the workload is admitted",
            kind="queue",
        )
    message = text(told, "message") or _failed(pod, world)
    return (
        _volume(pod, message, world)
        or _no_room(pod, message, world)
        or (_as_told(message) if message else None)
    )


def _failed(pod: Obj, world: World) -> str:
    event = newest(world.events_about(pod, kind="Pod"), "FailedScheduling")
    return event_text(event) if event else ""


def _as_told(message: str) -> Waiting:
    return Waiting(
        message=f"the scheduler finds no node: {one_line(message.partition(' preemption:')[0])}",
        remedy="change what it names: cpus, memory, gpus, node_selector, tolerations of the group",
        kind="capacity",
    )


# Volumes


def _volume(pod: Obj, message: str, world: World) -> Waiting | None:
    if found := _CLAIM.search(message):
        return _no_claim(found["name"])
    if _ZONE in message:
        return Waiting(
            message="its volume lives in a zone in which no node has room for the pod",
            remedy="choose nodes of the volume's zone by node_selector, or another claim",
            kind="volume",
            is_stuck=True,
        )
    claims = [
        text(volume, "persistentVolumeClaim", "claimName")
        for volume in objects(pod, "spec", "volumes")
    ]
    for name in filter(None, claims):
        claim = next((c for c in world.pvcs or () if name_of(c) == name), None)
        if claim is None and world.pvcs is not None:
            return _no_claim(name)
        if claim is not None and (found_cause := claim_cause(claim, world)):
            return found_cause
    if _UNBOUND in message:
        return Waiting(
            message="a volume claim of the pod is not bound yet",
            remedy="`kubectl describe pvc` tells why",
            kind="volume",
        )
    return None


def _no_claim(name: str) -> Waiting:
    return Waiting(
        message=f"there is no PersistentVolumeClaim {name} in the namespace",
        remedy="make it, or take another `claim` in storage.volumes of the template",
        kind="volume",
        is_stuck=True,
    )


def claim_cause(claim: Obj, world: World) -> Waiting | None:
    """Why a claim is not bound; None when it is, or when it only waits for its first pod."""
    name, phase = name_of(claim), text(claim, "status", "phase")
    if phase == "Lost":
        return Waiting(
            message=f"volume claim {name} has lost its volume",
            remedy="an admin restores the PersistentVolume, or take another claim",
            kind="volume",
            is_stuck=True,
        )
    if phase != "Pending":
        return None
    event = next(iter(world.events_about(claim, kind="PersistentVolumeClaim")), None)
    reason, why = text(event, "reason"), one_line(event_text(event or {}))
    if reason == "WaitForFirstConsumer":
        return None
    storage = text(claim, "spec", "storageClassName")
    of = f" of storage class {storage}" if storage else ""
    is_stuck = reason in ("ProvisioningFailed", "FailedBinding")
    return Waiting(
        message=f"volume claim {name}{of} is not bound{f': {why}' if why else ''}",
        remedy="take a storage class that is there (`kubectl get storageclass`) and has room",
        kind="volume",
        is_stuck=is_stuck,
    )


# Room


def _no_room(pod: Obj, message: str, world: World) -> Waiting | None:
    """Worked out once for all pods that ask for the same."""
    if world.rooms is None or not message:
        return None
    spec, scaling = fields(pod, "spec"), _autoscaler(pod, world)
    asked = requests_of(spec)
    wants = [spec.get(part) for part in ("nodeSelector", "affinity", "tolerations")]
    key = repr((sorted(asked.items()), wants, scaling))
    if key not in world.found:
        world.found[key] = _room_for(spec, asked, world, world.rooms, scaling)
    return world.found[key]


def _room_for(
    spec: Obj, asked: Amounts, world: World, nodes: Sequence[Node], scaling: Waiting | None
) -> Waiting | None:
    if not nodes:
        return _capacity("there is no node at all", scaling)
    refused = {node.name: why_not(spec, node.obj) for node in nodes}
    open_nodes = [node for node in nodes if not refused[node.name]]
    if not open_nodes:
        return _capacity(_excluded(refused), scaling, _PLACE)
    large = [node for node in open_nodes if node.has(asked)]
    closed = Counter(why for why in refused.values() if why)
    if not large:
        return _capacity(_too_small(open_nodes, asked, closed), scaling)
    if any(node.free is None for node in large) or any(node.fits(asked) for node in large):
        return None  # What keeps it away is not room: the scheduler's words tell more.
    return _taken(large, asked, world, scaling)


_PLACE: Final = "change node_selector, tolerations or affinity of the group in the template"
_SMALLER: Final = "ask for less in the template, or have larger nodes added"


def _capacity(message: str, scaling: Waiting | None, remedy: str = _SMALLER) -> Waiting:
    """An autoscaler that adds a node ends the wait; one that will not is told of."""
    if scaling is None:
        return Waiting(message=message, remedy=remedy, kind="capacity", is_stuck=True)
    return Waiting(
        message=f"{message}; {scaling.message}",
        remedy=scaling.remedy or remedy,
        kind="capacity",
        is_stuck=scaling.is_stuck,
    )


def _excluded(refused: dict[str, str]) -> str:
    reasons = Counter(refused.values())
    parts = [
        f"{count} {_nodes(count)} {_verb(why, count)}" for why, count in reasons.most_common(3)
    ]
    return f"no node takes the pod: {', '.join(parts)}"


def _verb(why: str, count: int) -> str:
    """`has no label x` is a sentence; `not ready` wants a verb."""
    if why.startswith("has ") and count > 1:
        return f"have {why.removeprefix('has ')}"
    if why.startswith("does not") and count > 1:
        return f"do not{why.removeprefix('does not')}"
    return why if why.startswith(("has ", "does not")) else f"{'is' if count == 1 else 'are'} {why}"


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"


def _too_small(nodes: Sequence[Node], asked: Amounts, closed: Counter[str]) -> str:
    name = _scarcest(nodes, asked)
    best = max(nodes, key=lambda node: node.allocatable.get(name, _ZERO))
    has = best.allocatable.get(name, _ZERO)
    if has >= asked[name]:
        wanted = ", ".join(shown(key, value) for key, value in asked.items())
        line = f"no node has {wanted} together"
    else:
        line = f"no node has {shown(name, asked[name])}"
        line += f" (the largest, {best.name}, has {short(name, has)})" if has else ""
    if closed:
        why, count = closed.most_common(1)[0]
        line += f"; {count} {_nodes(count)} {_verb(why, count)}"
    return line


def _taken(nodes: Sequence[Node], asked: Amounts, world: World, scaling: Waiting | None) -> Waiting:
    name = _scarcest_free(nodes, asked)
    best = max(nodes, key=lambda node: (node.free or {}).get(name, _ZERO))
    free, total = (best.free or {}).get(name, _ZERO), best.allocatable.get(name, _ZERO)
    line = f"no node has {short(name, asked.get(name, Decimal(1)))} free {name}"
    line += f" (the best, {best.name}, has {short(name, max(_ZERO, free))} of {short(name, total)})"
    if queue := full_queue(world, name):
        line += f"; {queue}"
    if scaling is not None:
        line += f"; {scaling.message}"
    return Waiting(
        message=line,
        remedy=(scaling.remedy if scaling else "")
        or "wait until others free it, suspend a cluster (`llmops ls`), or ask for less",
        kind="capacity",
        is_stuck=False,
    )


def _scarcest(nodes: Sequence[Node], asked: Amounts) -> str:
    """The resource of which the fewest nodes are large enough; of equals an accelerator."""

    def fit(name: str) -> tuple[int, bool]:
        enough = sum(node.allocatable.get(name, _ZERO) >= asked[name] for node in nodes)
        return enough, "/" not in name

    return min(asked, key=fit)


def _scarcest_free(nodes: Sequence[Node], asked: Amounts) -> str:
    def fit(name: str) -> tuple[int, bool]:
        enough = sum((node.free or {}).get(name, _ZERO) >= asked[name] for node in nodes)
        return enough, "/" not in name

    return min(asked, key=fit, default="pods")


# Autoscaler


def _autoscaler(pod: Obj, world: World) -> Waiting | None:
    """What the cluster's own autoscaler (not Ray's) has said about the pod."""
    reasons = ("TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp", "Nominated")
    event = newest(world.events_about(pod, kind="Pod"), *reasons)
    if event is None:
        return None
    reason, why = text(event, "reason"), one_line(event_text(event))
    if reason in ("TriggeredScaleUp", "Nominated"):
        groups = re.search(r"\[.*\]", why)
        added = f" ({groups[0]})" if groups else ""
        return Waiting(
            message=f"the autoscaler is adding nodes{added}", remedy="wait a few minutes"
        )
    if reason == "FailedScaleUp":
        return Waiting(
            message=f"the autoscaler could not add nodes: {why}",
            remedy="the cloud has none to give now: wait, or try another zone or context",
        )
    why = why.partition(": ")[2] or why
    return Waiting(
        message=f"the autoscaler will add none: {why}",
        remedy="have the node pool's maximum raised, or ask for what its nodes have",
        is_stuck=True,
    )
