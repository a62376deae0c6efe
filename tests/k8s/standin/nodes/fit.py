"""Which node a pod fits on, and the scheduler's own sentence when it fits on none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from llmops_kernel.config.models.quantity import amount
from tests.k8s.standin.runtime.client import Obj
from tests.k8s.standin.runtime.quantities import pod_requests

_RESOLVABLE = ("Insufficient ", "Too many pods", "node(s) didn't match pod anti-affinity rules")
_NO_VICTIMS = "No preemption victims found for incoming pod"
_NO_HELP = "Preemption is not helpful for scheduling"


@dataclass
class NodeCapacity:
    """One node and what its pods take of it."""

    node: Obj
    used: dict[str, Decimal] = field(default_factory=dict)
    pods: list[Obj] = field(default_factory=list)

    def take(self, pod: Obj) -> None:
        self.pods.append(pod)
        for name, quantity in pod_requests(pod["spec"]).items():
            self.used[name] = self.used.get(name, Decimal(0)) + quantity

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.node["metadata"].get("labels") or {})


def choose(pod: Obj, capacities: list[NodeCapacity]) -> tuple[NodeCapacity | None, str]:
    """The first node that fits, or None and the reason in Kubernetes' words."""
    if not capacities:
        return None, "no nodes available to schedule pods"
    wanted = pod_requests(pod["spec"])
    reasons: Counter[str] = Counter()
    helpless = 0
    for capacity in capacities:
        found = misfits(pod, capacity, wanted)
        if not found:
            return capacity, ""
        reasons.update(found)
        helpless += not all(reason.startswith(_RESOLVABLE) for reason in found)
    return None, _sentence(reasons, len(capacities), helpless)


def blocked(text: str, num_nodes: int) -> str:
    """The sentence when something forbids all nodes at once (a volume)."""
    return (
        f"0/{num_nodes} nodes are available: {text}. preemption: 0/{num_nodes} nodes are"
        f" available: {num_nodes} {_NO_HELP}."
    )


def _sentence(reasons: Counter[str], total: int, helpless: int) -> str:
    why = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    hopes = [(total - helpless, _NO_VICTIMS), (helpless, _NO_HELP)]
    preemption = ", ".join(f"{count} {text}" for count, text in hopes if count)
    return (
        f"0/{total} nodes are available: {why}. preemption: 0/{total} nodes are available:"
        f" {preemption}."
    )


def misfits(pod: Obj, capacity: NodeCapacity, wanted: Mapping[str, Decimal]) -> list[str]:
    """Reasons of the first filter that refuses, as the scheduler stops there."""
    spec = pod["spec"]
    if capacity.node["spec"].get("unschedulable"):
        return ["node(s) were unschedulable"]
    for taint in capacity.node["spec"].get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not _tolerates(spec, taint):
            name = f"{taint['key']}: {taint.get('value', '')}"
            return [f"node(s) had untolerated taint {{{name}}}"]
    if not _selected(spec, capacity.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if short := _short(capacity, wanted):
        return short
    if _repelled(pod, capacity):
        return ["node(s) didn't match pod anti-affinity rules"]
    return []


def _short(capacity: NodeCapacity, wanted: Mapping[str, Decimal]) -> list[str]:
    allocatable = capacity.node.get("status", {}).get("allocatable") or {}
    found = []
    if len(capacity.pods) >= int(allocatable.get("pods", 110)):
        found.append("Too many pods")
    for name, quantity in wanted.items():
        free = amount(allocatable.get(name, 0)) - capacity.used.get(name, Decimal(0))
        if quantity > free and quantity:
            found.append(f"Insufficient {name}")
    return found


def _tolerates(spec: Obj, taint: Obj) -> bool:
    for toleration in spec.get("tolerations") or []:
        is_key = toleration.get("key") in (None, "", taint["key"])
        is_effect = toleration.get("effect") in (None, "", taint["effect"])
        exists = toleration.get("operator") == "Exists"
        if is_key and is_effect and (exists or toleration.get("value") == taint.get("value")):
            return True
    return False


def _selected(spec: Obj, labels: Mapping[str, str]) -> bool:
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        all(_matches(rule, labels) for rule in term.get("matchExpressions") or [])
        for term in required["nodeSelectorTerms"]
    )


def _repelled(pod: Obj, capacity: NodeCapacity) -> bool:
    """By required anti-affinity towards pods on the node; other topologies are not looked at."""
    rules = ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or []
    own = [rule for rule in rules if rule.get("topologyKey") == "kubernetes.io/hostname"]
    return any(
        _labelled(rule.get("labelSelector") or {}, other)
        for rule in own
        for other in capacity.pods
        if other["metadata"]["namespace"] == pod["metadata"]["namespace"]
    )


def _labelled(selector: Obj, pod: Obj) -> bool:
    labels = pod["metadata"].get("labels") or {}
    exact = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in exact.items()) and all(
        _matches(rule, labels) for rule in selector.get("matchExpressions") or []
    )


def _matches(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or []
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    return False
