"""Fit of all pods of a RayCluster: on nodes, in a queue, in a namespace's quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum

from llmops_kernel.providers.kuberay.fit.node_fit import Amounts, Node, requests_of, why_not
from llmops_kernel.providers.kuberay.fit.queues import Quota, quotas_of
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    fields,
    name_of,
    objects,
    quantities,
    short,
    shown,
    text,
)
from llmops_kernel.providers.kuberay.resource.status import expected_pods, worker_groups

_ZERO = Decimal(0)


class Fit(IntEnum):
    """Grade of how well a cluster fits; smaller is better."""

    NOW = 0
    UNKNOWN = 1
    """It may fit: what would show it is hidden, or nodes may be added."""
    LATER = 2
    """It would fit if others released their resources."""
    NEVER = 3


@dataclass(frozen=True)
class Verdict:
    """The result for one namespace, or for one thing that limits it."""

    fit: Fit
    reason: str = ""
    """A readable reason; empty when nothing limits."""


@dataclass(frozen=True)
class PodSet:
    """Identical pods of a RayCluster."""

    name: str
    """`head`, or the name of the worker group."""
    count: int
    spec: Obj
    requests: Amounts = field(default_factory=dict)
    """Requests of one pod."""


def podsets_of(raycluster: Obj) -> tuple[PodSet, ...]:
    """Return the pods that the operator creates at the start, the head first."""
    head = fields(raycluster, "spec", "headGroupSpec", "template", "spec")
    podsets = [PodSet("head", 1, head, requests_of(head))]
    for group in worker_groups(raycluster):
        count = expected_pods(group)
        spec = fields(group, "template", "spec")
        if count > 0:
            podsets.append(PodSet(text(group, "groupName"), count, spec, requests_of(spec)))
    return tuple(podsets)


def total(podsets: Iterable[PodSet]) -> dict[str, Decimal]:
    """Return the requests of all pods together."""
    sums: dict[str, Decimal] = {}
    for podset in podsets:
        for name, value in podset.requests.items():
            sums[name] = sums.get(name, _ZERO) + value * podset.count
    return sums


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that limits most, with the reasons of all that are as bad."""
    all_verdicts = list(verdicts)
    fit = max((verdict.fit for verdict in all_verdicts), default=Fit.NOW)
    return Verdict(
        fit,
        "; ".join(
            verdict.reason for verdict in all_verdicts if verdict.fit == fit and verdict.reason
        ),
    )


# Nodes


def nodes_verdict(
    podsets: Sequence[PodSet], nodes: Sequence[Node] | None, *, can_grow: bool | None
) -> Verdict:
    """Return whether the pods fit on the nodes at the same time, each one as a whole.

    `can_grow`: nodes may be added when needed.
    """
    if nodes is None:
        return Verdict(Fit.UNKNOWN, "no permission to list its nodes")
    if any(node.free is None for node in nodes):
        short_of = _unplaced(podsets, [_emptied(node) for node in nodes])
        if not short_of:
            return Verdict(Fit.UNKNOWN, "no permission to list the pods on its nodes")
        return _unplaced_verdict(short_of, nodes, can_grow=can_grow)
    short_of = _unplaced(podsets, nodes)
    if not short_of:
        return Verdict(Fit.NOW)
    never = _unplaced(podsets, [_emptied(node) for node in nodes])
    if never:
        return _unplaced_verdict(never, nodes, can_grow=can_grow)
    reported = _short(short_of)
    if can_grow:
        return Verdict(Fit.UNKNOWN, f"no free capacity for {reported} now, but nodes may be added")
    return Verdict(Fit.LATER, f"no free capacity for {reported} now")


def _unplaced_verdict(
    missing: Mapping[str, int], nodes: Sequence[Node], *, can_grow: bool | None
) -> Verdict:
    line = f"its {len(nodes)} node{'' if len(nodes) == 1 else 's'} cannot hold {_short(missing)}"
    if can_grow:
        return Verdict(Fit.UNKNOWN, f"{line}, but nodes may be added")
    return Verdict(Fit.NEVER, f"{line} even when empty")


def _short(missing: Mapping[str, int]) -> str:
    parts = []
    for name, count in missing.items():
        pods = f"{count} worker{'' if count == 1 else 's'} of group {name}"
        parts.append("the head" if name == "head" else pods)
    return " and ".join(parts)


def _unplaced(podsets: Sequence[PodSet], nodes: Sequence[Node]) -> dict[str, int]:
    """Return the number of pods that find no node, by pod set.

    The largest pods are placed first, each where it fits best. This is no search over all
    placements: it may miss a packing that the scheduler finds by luck.
    """
    nodes_left = {node.name: node for node in nodes}
    missing: dict[str, int] = {}
    for podset in sorted(podsets, key=_size, reverse=True):
        count = podset.count
        max_per_node = 1 if _one_per_node(podset.spec) else count
        # Identical pods fill the tightest node first, which then stays the tightest.
        for name in sorted(nodes_left, key=lambda node_name: _spare(nodes_left[node_name])):
            if not nodes_left[name].fits(podset.requests) or why_not(
                podset.spec, nodes_left[name].obj
            ):
                continue
            for _ in range(min(count, max_per_node)):
                if not nodes_left[name].fits(podset.requests):
                    break
                nodes_left[name] = nodes_left[name].minus(podset.requests)
                count -= 1
            if not count:
                break
        if count:
            missing[podset.name] = count
    return {podset.name: missing[podset.name] for podset in podsets if podset.name in missing}


def _size(podset: PodSet) -> tuple[Decimal, Decimal]:
    devices = sum((v for name, v in podset.requests.items() if "/" in name), _ZERO)
    return devices, podset.requests.get("cpu", _ZERO)


def _spare(node: Node) -> tuple[Decimal, Decimal]:
    """Sort key, accelerators first: pods without one do not take up a node that has them."""
    free = node.free or {}
    return sum((v for n, v in free.items() if "/" in n), _ZERO), free.get("cpu", _ZERO)


def _one_per_node(spec: Obj) -> bool:
    """Return whether a rule keeps two pods of this kind off the same host."""
    rules = objects(
        spec, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return any(rule.get("topologyKey") == "kubernetes.io/hostname" for rule in rules)


def _emptied(node: Node) -> Node:
    return Node(node.name, node.obj, node.allocatable, dict(node.allocatable), 0)


def free_text(podsets: Sequence[PodSet], nodes: Sequence[Node] | None) -> str:
    """Return `24 of 32 nvidia.com/gpu are free` for the requested accelerator, else for CPUs."""
    requested = total(podsets)
    name = min(requested, key=lambda key: ("/" not in key, key != "cpu"), default="")
    if not name or nodes is None or any(node.free is None for node in nodes):
        return ""
    free = sum((max(_ZERO, (node.free or {}).get(name, _ZERO)) for node in nodes), _ZERO)
    every = sum((node.allocatable.get(name, _ZERO) for node in nodes), _ZERO)
    return f"{short(name, free)} of {short(name, every)} {name} are free"


# Queue


def queue_verdict(
    podsets: Sequence[PodSet],
    name: str,
    local_queues: Sequence[Obj] | None,
    cluster_queues: Sequence[Obj] | None,
) -> Verdict:
    """Return whether the queue has enough quota.

    Kueue admits all of a cluster or nothing, and takes each pod set out of one flavor.
    """
    if local_queues is None:
        return Verdict(Fit.UNKNOWN, f"no permission to read queue {name}")
    queue = next((item for item in local_queues if name_of(item) == name), None)
    if queue is None:
        return Verdict(Fit.NEVER, f"there is no queue {name}")
    if cluster_queues is None:
        return Verdict(Fit.UNKNOWN, f"no permission to read the quota of queue {name}")
    target = text(queue, "spec", "clusterQueue")
    cluster_queue = next((item for item in cluster_queues if name_of(item) == target), None)
    if cluster_queue is None:
        return Verdict(
            Fit.NEVER, f"queue {name} refers to ClusterQueue {target}, which does not exist"
        )
    for item in (queue, cluster_queue):
        if text(item, "spec", "stopPolicy") in ("Hold", "HoldAndDrain"):
            return Verdict(Fit.LATER, f"queue {name} is stopped")
    return _quota_verdict(podsets, name, quotas_of(cluster_queue, cluster_queues))


def _quota_verdict(podsets: Sequence[PodSet], name: str, quotas: Sequence[Quota]) -> Verdict:
    never = _excess(podsets, quotas, at_most=True)
    if never:
        return Verdict(Fit.NEVER, f"queue {name} can never provide {never}")
    now = _excess(podsets, quotas, at_most=False)
    return (
        Verdict(Fit.LATER, f"queue {name} has fewer than {now} left") if now else Verdict(Fit.NOW)
    )


def _excess(podsets: Sequence[PodSet], quotas: Sequence[Quota], *, at_most: bool) -> str:
    """Return what a pod set requests that no flavor has; flavors are tried in the queue's order."""
    remaining = {
        (quota.flavor, quota.resource): quota.limit if at_most else quota.available
        for quota in quotas
    }
    groups: dict[int, list[str]] = {}
    for quota in quotas:
        flavors = groups.setdefault(quota.group, [])
        if quota.flavor not in flavors:
            flavors.append(quota.flavor)
    groups_by_resource = {quota.resource: quota.group for quota in quotas}
    for podset in podsets:
        requested = {name: value * podset.count for name, value in podset.requests.items()}
        foreign = [name for name in requested if "/" in name and name not in groups_by_resource]
        if foreign:
            return shown(foreign[0], requested[foreign[0]])
        for group, flavors in groups.items():
            of_group = {n: v for n, v in requested.items() if groups_by_resource.get(n) == group}
            if (shortage := _take(of_group, flavors, remaining)) is not None:
                return f"{shown(*shortage)} for {_subject(podset)}"
    return ""


def _take(
    requested: Amounts, flavors: Sequence[str], remaining: dict[tuple[str, str], Decimal | None]
) -> tuple[str, Decimal] | None:
    """Take the amounts out of the first flavor that has them all; else return what is lacking."""
    shortage = None
    for flavor in flavors:
        shortages = [
            (name, value)
            for name, value in requested.items()
            if (available := remaining.get((flavor, name), _ZERO)) is not None and available < value
        ]
        if not shortages:
            for name, value in requested.items():
                available = remaining.get((flavor, name))
                if available is not None:
                    remaining[flavor, name] = available - value
            return None
        shortage = shortage or min(shortages, key=lambda pair: "/" not in pair[0])
    return shortage


def _subject(podset: PodSet) -> str:
    return "the head" if podset.name == "head" else f"group {podset.name}"


# Namespace


def namespace_verdict(podsets: Sequence[PodSet], quotas: Sequence[Obj] | None) -> Verdict:
    """Return whether the namespace's ResourceQuotas allow it; quotas with scopes are ignored."""
    if quotas is None:
        return Verdict(Fit.NOW)  # Most namespaces have none; creation reports it.
    requested = _quota_names(podsets)
    verdicts = []
    for quota in quotas:
        if dig(quota, "spec", "scopes") or dig(quota, "spec", "scopeSelector"):
            continue
        hard, used = quantities(quota, "status", "hard"), quantities(quota, "status", "used")
        for name, limit in hard.items():
            value = requested.get(name, _ZERO)
            if value > limit:
                verdicts.append(_quota_words(Fit.NEVER, quota, name, value, limit))
            elif value > limit - used.get(name, _ZERO):
                verdicts.append(_quota_words(Fit.LATER, quota, name, value, limit))
    return worst(verdicts)


def _quota_words(fit: Fit, quota: Obj, name: str, value: Decimal, limit: Decimal) -> Verdict:
    numbers = f"{short(name, value)} of {short(name, limit)} {name}"
    verb = "forbids" if fit is Fit.NEVER else "has too little left for"
    return Verdict(fit, f"quota {name_of(quota)} {verb} {numbers}")


def _quota_names(podsets: Sequence[PodSet]) -> dict[str, Decimal]:
    """Return the amounts that the cluster uses, under a ResourceQuota's own names."""
    pods = Decimal(sum(podset.count for podset in podsets))
    amounts = {"pods": pods, "count/pods": pods, "count/rayclusters.ray.io": Decimal(1)}
    for name, value in total(podsets).items():
        amounts[f"requests.{name}"] = value
        if name in ("cpu", "memory"):
            amounts[name] = value
    return amounts
