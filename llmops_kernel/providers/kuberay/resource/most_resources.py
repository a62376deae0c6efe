"""What Ray's autoscaler can bring a RayCluster to, by Ray's names of resources."""

from __future__ import annotations

import math
from typing import Any

from llmops_kernel.config.models.quantity import amount
from llmops_kernel.providers.kuberay.resource.objects import Obj, dig, fields
from llmops_kernel.providers.kuberay.resource.status import is_autoscaled
from llmops_kernel.providers.kuberay.resource.worker_groups import most_pods, worker_groups


def most_resources(raycluster: Obj) -> dict[str, float] | None:
    """Return CPUs and GPUs with all groups at their upper bounds; None without the autoscaler."""
    if not is_autoscaled(raycluster):
        return None
    groups = [(group, most_pods(group)) for group in worker_groups(raycluster)]
    groups.append((fields(raycluster, "spec", "headGroupSpec"), 1))
    total = {"CPU": 0.0, "GPU": 0.0}
    for group, pods in groups:
        for name, of_pod in _of_pod(group).items():
            total[name] += of_pod * pods
    return total


def _of_pod(group: Obj) -> dict[str, float]:
    """Return what Ray schedules on one pod, by the operator's and the autoscaler's own rule."""
    params, own = group.get("rayStartParams") or {}, group.get("resources") or {}
    containers = dig(group, "template", "spec", "containers")
    given = containers[0].get("resources") if isinstance(containers, list) and containers else None
    limits = (given or {}).get("limits") or {}
    requests = (given or {}).get("requests") or {}
    cpus = (own.get("CPU"), params.get("num-cpus"), limits.get("cpu"), requests.get("cpu"))
    gpus = [value for name, value in limits.items() if str(name).endswith("gpu")]
    return {
        "CPU": _number(*cpus),
        "GPU": _number(own.get("GPU"), params.get("num-gpus"), *gpus[:1]),
    }


def _number(*quantities: Any) -> float:
    """Return the first that is given, rounded up as Ray counts whole ones."""
    for quantity in quantities:
        try:
            return float(math.ceil(amount(quantity)))
        except ValueError:
            continue
    return 0.0
