"""Requests of a pod, free resources of a node, and the nodes that accept the pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    condition,
    dig,
    fields,
    labels,
    name_of,
    objects,
    quantities,
    text,
    texts,
)

Amounts = Mapping[str, Decimal]
_ENDED = ("Succeeded", "Failed")
_ZERO = Decimal(0)
_HARD = ("NoSchedule", "NoExecute")


def requests_of(spec: Obj) -> dict[str, Decimal]:
    """Return what the scheduler reserves for a pod with that `spec`, by its own rule."""
    total: dict[str, Decimal] = {}
    for container in objects(spec, "containers"):
        _add(total, _container(container))
    sidecars: dict[str, Decimal] = {}
    for container in objects(spec, "initContainers"):
        requested = _container(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requested)
            _add(total, requested)
            continue
        for name, value in requested.items():
            total[name] = max(total.get(name, _ZERO), value + sidecars.get(name, _ZERO))
    _add(total, quantities(spec, "overhead"))
    return {name: value for name, value in total.items() if value > 0}


def _container(container: Obj) -> dict[str, Decimal]:
    """Return a container's requests; a limit without a request is the request."""
    limits = quantities(container, "resources", "limits")
    return limits | quantities(container, "resources", "requests")


def _add(total: dict[str, Decimal], added: Amounts) -> None:
    for name, value in added.items():
        total[name] = total.get(name, _ZERO) + value


@dataclass(frozen=True)
class Node:
    """A node and its free resources; `free` is None if they could not be seen."""

    name: str
    obj: Obj
    allocatable: Amounts
    free: Amounts | None
    num_pods: int | None = None

    def has(self, requested: Amounts) -> bool:
        """Return whether the node would be large enough if it were empty."""
        return all(self.allocatable.get(name, _ZERO) >= value for name, value in requested.items())

    def fits(self, requested: Amounts) -> bool:
        free = self.free
        if free is None or free.get("pods", Decimal(1)) < 1:
            return False
        return all(free.get(name, _ZERO) >= value for name, value in requested.items())

    def minus(self, requested: Amounts) -> Node:
        """Return the node with one more pod on it."""
        free = dict(self.free or {})
        _add(free, {name: -value for name, value in requested.items()})
        if "pods" in free:
            free["pods"] -= 1
        return Node(self.name, self.obj, self.allocatable, free, (self.num_pods or 0) + 1)


def nodes_with_free_capacity(nodes: Iterable[Obj], pods: Iterable[Obj] | None) -> list[Node]:
    """Return the nodes with their free resources.

    `pods` are those of all namespaces; None if they cannot be seen.
    """
    used: dict[str, dict[str, Decimal]] = {}
    counts: dict[str, int] = {}
    for pod in pods or ():
        on = text(pod, "spec", "nodeName")
        if not on or text(pod, "status", "phase") in _ENDED:
            continue
        _add(used.setdefault(on, {}), requests_of(fields(pod, "spec")))
        counts[on] = counts.get(on, 0) + 1
    return [
        _node(node, None if pods is None else used.get(name_of(node), {}), counts) for node in nodes
    ]


def _node(node: Obj, used: Amounts | None, counts: Mapping[str, int]) -> Node:
    name, allocatable = name_of(node), quantities(node, "status", "allocatable")
    if used is None:
        return Node(name, node, allocatable, None)
    free = {key: value - used.get(key, _ZERO) for key, value in allocatable.items()}
    if "pods" in free:
        free["pods"] -= counts.get(name, 0)
    return Node(name, node, allocatable, free, counts.get(name, 0))


def why_not(spec: Obj, node: Obj) -> str:
    """Return why a node rejects such a pod, whatever its free capacity; empty if it does not."""
    if condition(node, "Ready").get("status") in ("False", "Unknown"):
        return "not ready"
    if dig(node, "spec", "unschedulable") is True:
        return "closed to new pods (cordoned)"
    if missing := _missing_label(spec, node):
        return missing
    for taint in objects(node, "spec", "taints"):
        if taint.get("effect") in _HARD and not _tolerated(taint, objects(spec, "tolerations")):
            return f"has the taint {_taint(taint)}"
    return ""


def _missing_label(spec: Obj, node: Obj) -> str:
    node_labels = labels(node, "metadata", "labels")
    for name, value in labels(spec, "nodeSelector").items():
        if node_labels.get(name) != value:
            return f"has no label {name}={value}"
    terms = objects(
        spec,
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    if not terms:
        return ""
    faults = [_unmet(term, node) for term in terms]
    return "" if "" in faults else faults[0]


def _unmet(term: Obj, node: Obj) -> str:
    node_labels = labels(node, "metadata", "labels")
    for rule in objects(term, "matchExpressions"):
        if not _matches(rule, node_labels):
            return f"does not match {_rule(rule)}"
    node_fields = {"metadata.name": name_of(node)}
    for rule in objects(term, "matchFields"):
        if not _matches(rule, node_fields):
            return f"does not match {_rule(rule)}"
    return ""


def _matches(rule: Obj, node_labels: Mapping[str, str]) -> bool:
    key, values, operator = text(rule, "key"), texts(rule, "values"), text(rule, "operator")
    value = node_labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and values:
        return _compares(value, values[0], is_greater=operator == "Gt")
    return True  # A rule that we do not know excludes no node.


def _compares(value: str | None, limit: str, *, is_greater: bool) -> bool:
    try:
        number, bound = int(value or ""), int(limit)
    except ValueError:
        return False
    return number > bound if is_greater else number < bound


def _rule(rule: Obj) -> str:
    values = texts(rule, "values")
    values_text = f" {', '.join(values)}" if values else ""
    return f"{text(rule, 'key')} {text(rule, 'operator')}{values_text}"


def _taint(taint: Obj) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{text(taint, 'key')}{value}:{text(taint, 'effect')}"


def _tolerated(taint: Obj, tolerations: Sequence[Obj]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return not key or key == taint.get("key")
    return key == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
