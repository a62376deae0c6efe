"""What the operator gives Ray's autoscaler to reach the API server: account, role, binding."""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.operator.names import clip, owner, service_account
from tests.k8s.standin.runtime.client import Obj

CORE, RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
_RULES = (
    ("", "pods", ["get", "list", "watch", "patch"]),
    ("", "pods/resize", ["patch"]),
    ("ray.io", "rayclusters", ["get", "patch"]),
)


def account(cluster: Obj) -> Obj:
    return {"metadata": _meta(cluster, service_account(cluster))}


def role(cluster: Obj) -> Obj:
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for group, resource, verbs in _RULES
    ]
    return {"metadata": _meta(cluster, clip(cluster["metadata"]["name"])), "rules": rules}


def binding(cluster: Obj) -> Obj:
    name, namespace = clip(cluster["metadata"]["name"]), cluster["metadata"]["namespace"]
    subject = {"kind": "ServiceAccount", "name": service_account(cluster), "namespace": namespace}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {"metadata": _meta(cluster, name), "subjects": [subject], "roleRef": role_ref}


def _meta(cluster: Obj, name: str) -> dict[str, Any]:
    labels = {
        "ray.io/cluster": cluster["metadata"]["name"],
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    return {"name": name, "labels": labels, "ownerReferences": [owner(cluster)]}
