"""Names and labels that KubeRay gives to what it makes."""

from __future__ import annotations

from tests.k8s.standin.runtime.client import Obj

KUBERAY = "v1.7.0"
GCS_PORT, AGENT_PORT, METRICS_PORT = "6379", "52365", 8080
AUTOSCALER = "autoscaler"
"""The container that it adds to the head's pod."""


def owner(cluster: Obj) -> Obj:
    return {
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def clip(name: str) -> str:
    """A name of at most 50 characters that starts with a letter: its end is kept."""
    name = name[-50:]
    return name if name[0].isalpha() else "r" + name[1:]


def service_name(cluster: Obj) -> str:
    custom = cluster["spec"]["headGroupSpec"].get("headService") or {}
    return custom.get("metadata", {}).get("name") or f"{cluster['metadata']['name']}-head-svc"


def service_fqdn(cluster: Obj) -> str:
    return f"{service_name(cluster)}.{cluster['metadata']['namespace']}.svc.cluster.local"


def identity(cluster: Obj, node_type: str) -> dict[str, str]:
    name = cluster["metadata"]["name"]
    return {
        "ray.io/cluster": name,
        "ray.io/node-type": node_type,
        "ray.io/identifier": f"{name}-{node_type}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


def gcs_port(cluster: Obj) -> str:
    return str((cluster["spec"]["headGroupSpec"].get("rayStartParams") or {}).get("port", GCS_PORT))


def service_account(cluster: Obj) -> str:
    template = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return clip(template.get("serviceAccountName") or cluster["metadata"]["name"])
