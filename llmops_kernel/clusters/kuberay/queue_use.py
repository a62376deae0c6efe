"""What Kueue's queues give and what of it is in use."""

from __future__ import annotations

from decimal import Decimal

from llmops_kernel.clusters.kuberay.objects import (
    Obj,
    dig,
    name_of,
    objects,
    quantity,
    short,
    text,
)
from llmops_kernel.clusters.kuberay.world import World

_ZERO = Decimal(0)


def local_queue(world: World) -> Obj | None:
    """The LocalQueue that the cluster names; None when it is not there or was not seen."""
    return next((q for q in world.local_queues or () if name_of(q) == world.queue), None)


def cluster_queue(world: World) -> Obj | None:
    name = text(local_queue(world), "spec", "clusterQueue")
    return next((q for q in world.cluster_queues or () if name and name_of(q) == name), None)


def nominal(queue: Obj, resource: str) -> Decimal | None:
    """The queue's own quota over all flavors; None when it has none for that resource."""
    found = [
        quantity(entry.get("nominalQuota"))
        for group in objects(queue, "spec", "resourceGroups")
        for flavor in objects(group, "flavors")
        for entry in objects(flavor, "resources")
        if entry.get("name") == resource
    ]
    known = [value for value in found if value is not None]
    return sum(known, _ZERO) if known else None


def used(queue: Obj, resource: str) -> Decimal | None:
    """Reserved by workloads of that queue; None when the queue does not say."""
    for part in ("flavorsReservation", "flavorsUsage", "flavorUsage"):
        if dig(queue, "status", part) is None:
            continue
        found = [
            quantity(entry.get("total"))
            for flavor in objects(queue, "status", part)
            for entry in objects(flavor, "resources")
            if entry.get("name") == resource
        ]
        return sum((value for value in found if value is not None), _ZERO)
    return None


def cohort(queue: Obj) -> str:
    """The group of queues that lend to each other; both spellings of the API."""
    return text(queue, "spec", "cohortName") or text(queue, "spec", "cohort")


def use_told(world: World, resource: str) -> str:
    """`queue team-a is at 16 of 16`; empty when it is not known."""
    queue = cluster_queue(world)
    if queue is None:
        return ""
    total, taken = nominal(queue, resource), used(queue, resource)
    if total is None or taken is None:
        return ""
    return f"queue {world.queue} is at {short(resource, taken)} of {short(resource, total)}"


def full_queue(world: World, resource: str) -> str:
    """The same, only for a queue that has nothing left."""
    queue = cluster_queue(world)
    if queue is None:
        return ""
    total, taken = nominal(queue, resource), used(queue, resource)
    is_full = total is not None and taken is not None and taken >= total
    return use_told(world, resource) if is_full else ""
