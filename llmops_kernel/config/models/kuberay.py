"""The template of a cluster on Kubernetes: what its RayCluster is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.kuberay_fields import KubeRayFields
from llmops_kernel.config.models.kuberay_pods import WorkerGroup
from llmops_kernel.config.models.kuberay_rules import broken_rules
from llmops_kernel.config.models.section import Broken
from llmops_kernel.version import SUPPORTED_RAY


class KubeRayTemplate(KubeRayFields):
    """Everything `llmops.up` needs for a cluster on Kubernetes; the same file, the same cluster."""

    example: ClassVar[Mapping[str, Any]] = {
        "image": f"rayproject/ray:{SUPPORTED_RAY}-py311-cpu",
        "worker_groups": [{"name": "workers", "cpus": "4", "memory": "16Gi"}],
    }

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)

    def effect(self) -> list[str]:
        return [
            f"Cluster {self.name}: a Ray head on Kubernetes ({_where(self)}), {self.warm.words}.",
            *(f"Worker group {_group(group)}." for group in self.worker_groups),
            *_conditions(self),
            f"A stopped run has {self.stop_wait_s:g} s to save its checkpoint.",
        ]


def _where(template: KubeRayFields) -> str:
    contexts = " or ".join(template.contexts) or "the current context"
    return f"{contexts}, namespace {template.namespace}" if template.namespace else contexts


def _group(group: WorkerGroup) -> str:
    """`h100: 2 pods, at most 4, each with 191 CPUs, 1722Gi and 8 GPUs on a3-highgpu-8g`."""
    pods = counted(group.replicas * group.num_hosts, "pod")
    cpus = f"{group.pod_cpus} CPU{'' if group.pod_cpus == '1' else 's'}"
    highest = group.highest * group.num_hosts
    most = f", at most {highest}" if group.highest != group.replicas else ""
    hosts = f" ({group.num_hosts} a replica)" if group.num_hosts > 1 else ""
    gpus = f" and {counted(group.pod_gpus, 'GPU')}" if group.pod_gpus else ""
    host = f" on {group.host_type}" if group.host_type else ""
    spot = ", on spot machines" if group.spot else ""
    price = f", {group.price.words} each" if group.price.words else ""
    return (
        f"{group.name}: {pods}{most}{hosts}, each with {cpus}, {group.pod_memory}{gpus}{host}"
        f"{spot}{price}"
    )


def _conditions(template: KubeRayFields) -> list[str]:
    lines = []
    if template.queue:
        lines.append(f"Kueue starts it when queue {template.queue} has enough quota.")
    idle = template.idle
    if idle.suspend_after_s is not None:
        lines.append(f"Suspended after {_time(idle.suspend_after_s)} without work.")
    if idle.time_to_live_s is not None:
        ends = "deleted" if idle.at_end == "delete" else "suspended"
        after = _time(idle.time_to_live_s)
        lines.append(f"Always {ends} {after} after its start, even while runs are active.")
    return lines


def _time(seconds: float) -> str:
    for unit, size in (("day", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            number = seconds / size
            return counted(number, unit) if unit == "day" else f"{number:g} {unit}"
    return f"{seconds:g} s"
