"""The smallest objects that the API takes, for tests of the API server itself."""

from __future__ import annotations

from typing import Any

RAYCLUSTERS = "/apis/ray.io/v1/namespaces/{}/rayclusters"
Body = dict[str, Any]


def raycluster(name: str, **spec: Any) -> Body:
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {"headGroupSpec": head, **spec},
    }


def pod(name: str, *, owner: Body | None = None, labels: dict[str, str] | None = None) -> Body:
    meta: Body = {"name": name, "labels": labels or {}}
    if owner is not None:
        meta["ownerReferences"] = [owned_by(owner)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [{"name": "main", "image": "ray"}]},
    }


def owned_by(owner: Body) -> Body:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
