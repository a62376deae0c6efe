"""Builds small snapshots of a Kubernetes cluster, in the API's own spelling."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation

NOW_S = 1_800_000_000.0
IMAGE = "registry.example/ray:2.60.0"


def stamp(seconds_ago: float = 60.0) -> str:
    at = datetime.fromtimestamp(NOW_S - seconds_ago, UTC)
    return at.isoformat().replace("+00:00", "Z")


def raycluster(
    *,
    replicas: int = 2,
    age_s: float = 60.0,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    groups: list[dict[str, Any]] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    group = {"groupName": "gpu", "replicas": replicas, "numOfHosts": 1, "template": {}}
    return {
        "metadata": {
            "name": "c",
            "namespace": "team",
            "uid": "u1",
            "generation": 1,
            "creationTimestamp": stamp(age_s),
            **metadata,
        },
        "spec": {"workerGroupSpecs": groups or [group], **(spec or {})},
        "status": {"observedGeneration": 1} if status is None else status,
    }


def pod(
    name: str = "w0",
    *,
    kind: str = "worker",
    group: str = "gpu",
    node: str = "",
    asks: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    ready: bool = False,
    phase: str = "Pending",
    conditions: list[dict[str, Any]] | None = None,
    **status: Any,
) -> dict[str, Any]:
    requests = {"cpu": "8", "nvidia.com/gpu": "8"} if asks is None else asks
    container = {"name": f"ray-{kind}", "image": IMAGE, "resources": {"requests": requests}}
    reported = [{"type": "Ready", "status": "True"}] if ready else conditions or []
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {
                "ray.io/cluster": "c",
                "ray.io/node-type": kind,
                "ray.io/group": group if kind == "worker" else "headgroup",
            },
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **(spec or {})},
        "status": {"phase": "Running" if ready else phase, "conditions": reported, **status},
    }


def unscheduled(name: str = "w0", **kw: Any) -> dict[str, Any]:
    message = kw.pop("message", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    reported = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return pod(name, conditions=[{**reported, "message": message}], **kw)


def container_waits(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """The status of a worker's container that waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "ray-worker", "image": IMAGE, "state": state, **more}]}


def head(*, ready: bool = True, **kw: Any) -> dict[str, Any]:
    return pod("h", kind="head", node="n0", asks={"cpu": "4"}, ready=ready, **kw)


def node(name: str = "n0", *, has: dict[str, str] | None = None, **kw: Any) -> dict[str, Any]:
    allocatable = {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": kw.get("labels", {})},
        "spec": kw.get("spec", {}),
        "status": {
            "allocatable": allocatable | (has or {}),
            "conditions": [{"type": "Ready", **kw.get("ready", {"status": "True"})}],
        },
    }


def event(
    reason: str,
    message: str,
    *,
    about: tuple[str, str] = ("RayCluster", "c"),
    kind: str = "Warning",
    ago_s: float = 5.0,
    by: str = "raycluster-controller",
) -> dict[str, Any]:
    return {
        "type": kind,
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": about[0], "name": about[1]},
        "reportingComponent": by,
        "source": {},
        "lastTimestamp": stamp(ago_s),
    }


def pod_event(reason: str, message: str, *, name: str = "w0", **kw: Any) -> dict[str, Any]:
    return event(reason, message, about=("Pod", name), by="kubelet", **kw)


def observation(cluster: dict[str, Any] | None = None, **kw: Any) -> ClusterObservation:
    lists = {k: tuple(v) if isinstance(v, list) else v for k, v in kw.items()}
    return ClusterObservation(cluster if cluster is not None else raycluster(), NOW_S, **lists)
