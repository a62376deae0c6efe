"""Which pods KubeRay's operator deletes, and the events it writes about them."""

from __future__ import annotations

from tests.k8s.standin.runtime.client import Obj


def where(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def is_leaving(pod: Obj) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def must_go(pod: Obj) -> str | None:
    """Why the operator deletes the pod; None when it does not."""
    phase, name = pod["status"].get("phase"), pod["metadata"]["name"]
    node_type = pod["metadata"]["labels"]["ray.io/node-type"]
    if phase in ("Failed", "Succeeded"):
        return (
            f"The {node_type} Pod {name} status is {phase} which is a terminal state. KubeRay will"
            " delete the Pod and create new Pods in the next reconciliation if necessary."
        )
    policy = pod["spec"].get("restartPolicy", "Always")
    if phase == "Running" and policy == "Never" and _ray_terminated(pod):
        return (
            f"The Pod status of the {node_type} Pod {name} is {phase}, and the Ray container"
            f" terminated status is {_ray_terminated(pod)}. The container is unable to restart due"
            f" to its restart policy {policy}, so KubeRay will delete it."
        )
    return None


def _ray_terminated(pod: Obj) -> Obj | None:
    name = pod["spec"]["containers"][0]["name"]
    for status in pod["status"].get("containerStatuses") or []:
        if status["name"] == name:
            return (status.get("state") or {}).get("terminated")
    return None


def ended(pod: Obj) -> str:
    terminated = _ray_terminated(pod)
    return (
        f"{where(pod)}; Pod status: {pod['status'].get('phase')}; Pod restart policy:"
        f" {pod['spec'].get('restartPolicy', 'Always')}; Ray container terminated status:"
        f" {'nil' if terminated is None else terminated}"
    )
