"""Small RayClusters for tests of the stand-ins."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
RAYCLUSTERS = "/apis/ray.io/v1/namespaces/{}/rayclusters"


def container(name: str, *, image: str, limits: dict[str, str], **more: Any) -> Obj:
    return {"name": name, "image": image, "resources": {"limits": limits}, **more}


def group(
    name: str = "gpu",
    replicas: int = 1,
    *,
    image: str = "rayproject/ray:2.60.0",
    cpu: str = "1",
    gpu: int = 0,
    pod: Obj | None = None,
    **more: Any,
) -> Obj:
    limits = {"cpu": cpu, "memory": "1Gi", **({"nvidia.com/gpu": str(gpu)} if gpu else {})}
    spec = {"containers": [container("ray-worker", image=image, limits=limits)], **(pod or {})}
    bounds = {"replicas": replicas, "minReplicas": 0, "maxReplicas": max(replicas, 4)}
    return {"groupName": name, "template": {"spec": spec}, **bounds, **more}


def raycluster(
    name: str,
    *groups: Obj,
    head: Obj | None = None,
    labels: dict[str, str] | None = None,
    image: str = "rayproject/ray:2.60.0",
    **spec: Any,
) -> Obj:
    """Token auth, a head of 1 CPU that Ray gives no work, and these worker groups."""
    limits = {"cpu": "1", "memory": "2Gi"}
    pod = {"containers": [container("ray-head", image=image, limits=limits)], **(head or {})}
    return {
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "rayVersion": "2.60.0", "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": pod}},
            "workerGroupSpecs": list(groups), **spec,
        },
    }  # fmt: skip
