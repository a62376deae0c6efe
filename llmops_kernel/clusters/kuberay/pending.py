"""Why a cluster is not as it was asked for: one sentence a reason, the most telling first."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.clusters.demand import demand_waits
from llmops_kernel.clusters.kuberay.objects import (
    fields,
)
from llmops_kernel.clusters.kuberay.pending_cluster import leaving, unattended
from llmops_kernel.clusters.kuberay.pending_pods import (
    heads,
    is_ready,
    pods_wait,
    ready_counts,
)
from llmops_kernel.clusters.kuberay.pending_queue import queue_waits
from llmops_kernel.clusters.kuberay.world import World
from llmops_kernel.clusters.provider import Waiting

_MAX = 6


def waiting(world: World) -> tuple[Waiting, ...]:
    """Empty for a cluster that is as it should be, and for one that was suspended on purpose."""
    found = leaving(world) or unattended(world)
    if not found:
        found = queue_waits(world)
        if not found and fields(world.raycluster, "spec").get("suspend") is True:
            found = _suspending(world)
        elif not found and not world.is_elsewhere:
            found = [*pods_wait(world), *_silent_ray(world), *_demand(world)]
    reasons = [reason.model_copy(update={"message": _sentence(reason.message)}) for reason in found]
    return tuple([*_once(reasons)[:_MAX], *(_hidden(world) if reasons else [])])


def _once(reasons: Iterable[Waiting]) -> list[Waiting]:
    return list({reason.message: reason for reason in reversed([*reasons])}.values())[::-1]


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}"


def _suspending(world: World) -> list[Waiting]:
    left = len(world.pods)
    if not left:
        return []
    message = f"it is being suspended: {left} pod{'' if left == 1 else 's'} left"
    return [Waiting(message=message, kind="progress")]


def _silent_ray(world: World) -> list[Waiting]:
    """All pods stand, yet nobody answers."""
    if world.ray_answers is not False or not any(map(is_ready, heads(world))):
        return []
    return [
        Waiting(
            message="the head pod is ready, but Ray's API does not answer",
            remedy="wait a few seconds; if it stays so: check the way to it (`access` of the"
            " template, right services/proxy) and the head's log",
            kind="ray",
        )
    ]


def _demand(world: World) -> list[Waiting]:
    """On a cluster that is complete."""
    ready, wanted = ready_counts(world)
    report = fields(world.ray_status, "data", "clusterStatus", "loadMetricsReport")
    return [] if ready < wanted else [*demand_waits(report)]


def _hidden(world: World) -> list[Waiting]:
    found = []
    if world.denied:
        found.append(
            Waiting(
                message=f"Could not be looked at for lack of rights: {', '.join(world.denied)}",
                remedy="cluster_templates/rbac.yaml has the rules that allow it",
                kind="permission",
            )
        )
    if world.silent:
        found.append(
            Waiting(
                message=f"Did not answer in time: {', '.join(world.silent)}",
                remedy="ask again",
                kind="permission",
            )
        )
    return found
