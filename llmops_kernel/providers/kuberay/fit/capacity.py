"""Whether all pods of a RayCluster fit: on nodes, in a queue, in a namespace's quota."""

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
    """How well a cluster fits; smaller is better."""

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
    why: str = ""
    """A readable reason; empty when nothing limits."""


@dataclass(frozen=True)
class PodSet:
    """Identical pods of a RayCluster."""

    name: str
    """`head`, or the name of the worker group."""
    count: int
    spec: Obj
    asks: Amounts = field(default_factory=dict)
    """Requests of one pod."""


def podsets_of(raycluster: Obj) -> tuple[PodSet, ...]:
    """Return the pods that the operator creates at the start, the head first."""
    head = fields(raycluster, "spec", "headGroupSpec", "template", "spec")
    found = [PodSet("head", 1, head, requests_of(head))]
    for group in worker_groups(raycluster):
        count = expected_pods(group)
        spec = fields(group, "template", "spec")
        if count > 0:
            found.append(PodSet(text(group, "groupName"), count, spec, requests_of(spec)))
    return tuple(found)


def total(podsets: Iterable[PodSet]) -> dict[str, Decimal]:
    """Return the requests of all pods together."""
    found: dict[str, Decimal] = {}
    for podset in podsets:
        for name, value in podset.asks.items():
            found[name] = found.get(name, _ZERO) + value * podset.count
    return found


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that limits most, with the reasons of all that are as bad."""
    found = list(verdicts)
    fit = max((one.fit for one in found), default=Fit.NOW)
    return Verdict(fit, "; ".join(one.why for one in found if one.fit == fit and one.why))


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
        return _not_there(short_of, nodes, can_grow=can_grow)
    short_of = _unplaced(podsets, nodes)
    if not short_of:
        return Verdict(Fit.NOW)
    never = _unplaced(podsets, [_emptied(node) for node in nodes])
    if never:
        return _not_there(never, nodes, can_grow=can_grow)
    reported = _short(short_of)
    if can_grow:
        return Verdict(Fit.UNKNOWN, f"no free capacity for {reported} now, but nodes may be added")
    return Verdict(Fit.LATER, f"no free capacity for {reported} now")


def _not_there(
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
    left = {node.name: node for node in nodes}
    missing: dict[str, int] = {}
    for podset in sorted(podsets, key=_size, reverse=True):
        count = podset.count
        most = 1 if _one_per_node(podset.spec) else count
        # Identical pods fill the tightest node first, which then stays the tightest.
        for name in sorted(left, key=lambda one: _spare(left[one])):
            if not left[name].fits(podset.asks) or why_not(podset.spec, left[name].obj):
                continue
            for _ in range(min(count, most)):
                if not left[name].fits(podset.asks):
                    break
                left[name] = left[name].minus(podset.asks)
                count -= 1
            if not count:
                break
        if count:
            missing[podset.name] = count
    return {podset.name: missing[podset.name] for podset in podsets if podset.name in missing}


def _size(podset: PodSet) -> tuple[Decimal, Decimal]:
    devices = sum((v for name, v in podset.asks.items() if "/" in name), _ZERO)
    return devices, podset.asks.get("cpu", _ZERO)


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
    asked = total(podsets)
    name = min(asked, key=lambda key: ("/" not in key, key != "cpu"), default="")
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
    queue = next((one for one in local_queues if name_of(one) == name), None)
    if queue is None:
        return Verdict(Fit.NEVER, f"there is no queue {name}")
    if cluster_queues is None:
        return Verdict(Fit.UNKNOWN, f"no permission to read the quota of queue {name}")
    target = text(queue, "spec", "clusterQueue")
    own = next((one for one in cluster_queues if name_of(one) == target), None)
    if own is None:
        return Verdict(
            Fit.NEVER, f"queue {name} refers to ClusterQueue {target}, which does not exist"
        )
    for one in (queue, own):
        if text(one, "spec", "stopPolicy") in ("Hold", "HoldAndDrain"):
            return Verdict(Fit.LATER, f"queue {name} is stopped")
    return _quota_verdict(podsets, name, quotas_of(own, cluster_queues))


def _quota_verdict(podsets: Sequence[PodSet], name: str, quotas: Sequence[Quota]) -> Verdict:
    never = _over(podsets, quotas, at_most=True)
    if never:
        return Verdict(Fit.NEVER, f"queue {name} can never provide {never}")
    now = _over(podsets, quotas, at_most=False)
    return (
        Verdict(Fit.LATER, f"queue {name} has fewer than {now} left") if now else Verdict(Fit.NOW)
    )


def _over(podsets: Sequence[PodSet], quotas: Sequence[Quota], *, at_most: bool) -> str:
    """Return what a pod set requests that no flavor has; flavors are tried in the queue's order."""
    left = {
        (quota.flavor, quota.resource): quota.most if at_most else quota.available
        for quota in quotas
    }
    groups: dict[int, list[str]] = {}
    for quota in quotas:
        flavors = groups.setdefault(quota.group, [])
        if quota.flavor not in flavors:
            flavors.append(quota.flavor)
    covered = {quota.resource: quota.group for quota in quotas}
    for podset in podsets:
        wants = {name: value * podset.count for name, value in podset.asks.items()}
        foreign = [name for name in wants if "/" in name and name not in covered]
        if foreign:
            return shown(foreign[0], wants[foreign[0]])
        for group, flavors in groups.items():
            here = {n: v for n, v in wants.items() if covered.get(n) == group}
            if (lacking := _take(here, flavors, left)) is not None:
                return f"{shown(*lacking)} for {_whom(podset)}"
    return ""


def _take(
    wants: Amounts, flavors: Sequence[str], left: dict[tuple[str, str], Decimal | None]
) -> tuple[str, Decimal] | None:
    """Take the amounts out of the first flavor that has them all; else return what is lacking."""
    lacking = None
    for flavor in flavors:
        lacks = [
            (name, value)
            for name, value in wants.items()
            if (there := left.get((flavor, name), _ZERO)) is not None and there < value
        ]
        if not lacks:
            for name, value in wants.items():
                there = left.get((flavor, name))
                if there is not None:
                    left[flavor, name] = there - value
            return None
        lacking = lacking or min(lacks, key=lambda pair: "/" not in pair[0])
    return lacking


def _whom(podset: PodSet) -> str:
    return "the head" if podset.name == "head" else f"group {podset.name}"


# Namespace


def namespace_verdict(podsets: Sequence[PodSet], quotas: Sequence[Obj] | None) -> Verdict:
    """Return whether the namespace's ResourceQuotas allow it; quotas with scopes are ignored."""
    if quotas is None:
        return Verdict(Fit.NOW)  # Most namespaces have none; creation reports it.
    wants = _quota_names(podsets)
    found = []
    for quota in quotas:
        if dig(quota, "spec", "scopes") or dig(quota, "spec", "scopeSelector"):
            continue
        hard, used = quantities(quota, "status", "hard"), quantities(quota, "status", "used")
        for name, limit in hard.items():
            asked = wants.get(name, _ZERO)
            if asked > limit:
                found.append(_quota_words(Fit.NEVER, quota, name, asked, limit))
            elif asked > limit - used.get(name, _ZERO):
                found.append(_quota_words(Fit.LATER, quota, name, asked, limit))
    return worst(found)


def _quota_words(fit: Fit, quota: Obj, name: str, asked: Decimal, limit: Decimal) -> Verdict:
    what = f"{short(name, asked)} of {short(name, limit)} {name}"
    how = "forbids" if fit is Fit.NEVER else "has too little left for"
    return Verdict(fit, f"quota {name_of(quota)} {how} {what}")


def _quota_names(podsets: Sequence[PodSet]) -> dict[str, Decimal]:
    """Return the amounts that the cluster uses, under a ResourceQuota's own names."""
    pods = Decimal(sum(podset.count for podset in podsets))
    found = {"pods": pods, "count/pods": pods, "count/rayclusters.ray.io": Decimal(1)}
    for name, value in total(podsets).items():
        found[f"requests.{name}"] = value
        if name in ("cpu", "memory"):
            found[name] = value
    return found
