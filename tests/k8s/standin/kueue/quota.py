"""Kueue's arithmetic: what a cluster asks for, what a queue has left, and Kueue's own sentence."""

from __future__ import annotations

from decimal import Decimal

from llmops_kernel.config.models.quantity import amount
from tests.k8s.standin.operator.status import desired_replicas
from tests.k8s.standin.runtime.client import Obj
from tests.k8s.standin.runtime.quantities import canonical, pod_requests

Requests = dict[str, dict[str, Decimal]]
"""Pod set -> resource -> what all its pods request."""


def pod_sets(cluster: Obj) -> list[Obj]:
    spec = cluster["spec"]
    sets = [{"name": "head", "count": 1, "template": spec["headGroupSpec"]["template"]}]
    for group in spec.get("workerGroupSpecs") or []:
        count = desired_replicas(group)
        sets.append({"name": group["groupName"], "count": count, "template": group["template"]})
    return sets


def requests(workload: Obj) -> Requests:
    return {
        each["name"]: {
            name: quantity * each["count"]
            for name, quantity in pod_requests(each["template"]["spec"]).items()
        }
        for each in workload["spec"]["podSets"]
    }


def total(asked: Requests) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for resources in asked.values():
        for name, quantity in resources.items():
            sums[name] = sums.get(name, Decimal(0)) + quantity
    return sums


def quotas(queue: Obj) -> dict[str, tuple[str, Decimal]]:
    """Resource -> its first flavor and nominal quota."""
    found: dict[str, tuple[str, Decimal]] = {}
    for group in queue["spec"].get("resourceGroups") or []:
        flavor = group["flavors"][0]
        for resource in flavor["resources"]:
            found[resource["name"]] = (flavor["name"], amount(resource["nominalQuota"]))
    return found


def assignments(workload: Obj, queue: Obj) -> list[Obj]:
    """The flavors that the pod sets of an admitted Workload get."""
    limits = quotas(queue)
    counts = {each["name"]: each["count"] for each in workload["spec"]["podSets"]}
    return [
        {
            "name": pod_set,
            "count": counts[pod_set],
            "flavors": {name: limits[name][0] for name in resources if name in limits},
        }
        for pod_set, resources in requests(workload).items()
    ]


def refusal(asked: Requests, queue: Obj, used: dict[str, Decimal]) -> str | None:
    """Why the cluster does not fit, in Kueue's words; None when it does."""
    limits, taken = quotas(queue), dict(used)
    for pod_set, resources in asked.items():
        problems = []
        for name, quantity in sorted(resources.items()):
            if not quantity or name == "ephemeral-storage":
                continue
            if name not in limits:
                problems.append(f"resource {name} unavailable in ClusterQueue")
                continue
            flavor, nominal = limits[name]
            taken[name] = taken.get(name, Decimal(0)) + quantity
            if quantity > nominal:
                problems.append(
                    f"insufficient quota for {name} in flavor {flavor}, previously considered"
                    f" podsets requests (0) + current podset request ({_text(name, quantity)}) >"
                    f" maximum capacity ({_text(name, nominal)})"
                )
            elif taken[name] > nominal:
                more = _text(name, taken[name] - nominal)
                problems.append(
                    f"insufficient unused quota for {name} in flavor {flavor}, {more} more needed"
                )
        if problems:
            return f"couldn't assign flavors to pod set {pod_set}: {', '.join(problems)}"
    return None


def _text(name: str, quantity: Decimal) -> str:
    return canonical(quantity, is_binary=name == "memory")


def usage(queue: Obj, used: dict[str, Decimal]) -> list[Obj]:
    """As in a queue's status: per flavor, in its order."""
    flavors: dict[str, list[Obj]] = {}
    for name, (flavor, _) in quotas(queue).items():
        total_used = _text(name, used.get(name, Decimal(0)))
        flavors.setdefault(flavor, []).append({"name": name, "total": total_used})
    return [{"name": flavor, "resources": found} for flavor, found in flavors.items()]
