"""What this user may do in a namespace, and which rule of rbac.yaml would allow the rest."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from llmops_kernel.clusters.kuberay.fresh import Fresh
from llmops_kernel.clusters.kuberay.kube import Kube, KubeError
from llmops_kernel.clusters.kuberay.kube_errors import RBAC_FILE
from llmops_kernel.clusters.kuberay.kube_paths import ACCESS_REVIEWS
from llmops_kernel.clusters.provider import ClusterAction


@dataclass(frozen=True)
class Right:
    """A verb on a resource (`services/proxy` has its subresource in it)."""

    verb: str
    resource: str
    group: str = ""
    rule: int = 0
    """Number of the rule in rbac.yaml that gives it."""


RAY: Final = "ray.io"
CREATE: Final = Right("create", "rayclusters", RAY, rule=1)
PATCH: Final = Right("patch", "rayclusters", RAY, rule=1)
DELETE: Final = Right("delete", "rayclusters", RAY, rule=1)
PODS: Final = Right("list", "pods", rule=3)
EVENTS: Final = Right("list", "events", rule=5)
PROXY: Final = Right("get", "services/proxy", rule=8)
SUBMIT: Final = Right("create", "services/proxy", rule=8)
SECRETS: Final = Right("get", "secrets", rule=9)
FILES: Final = Right("create", "configmaps", rule=10)
ALL: Final = (CREATE, PATCH, DELETE, PODS, EVENTS, PROXY, SUBMIT, SECRETS, FILES)
NEEDED: Final = {
    ClusterAction.SUSPEND: PATCH,
    ClusterAction.RESUME: PATCH,
    ClusterAction.SCALE: PATCH,
    ClusterAction.DELETE: DELETE,
}
_ANSWER_S: Final = 3.0
# Rights change rarely, and whoever gets one looks again within minutes.
_reviews: Fresh[dict[Right, bool]] = Fresh(fresh_s=300.0, patience_s=0.5, stale_s=3600.0)


def missing(kube: Kube, namespace: str, *, until_s: float | None = None) -> frozenset[Right]:
    """Asked once a process and place, all at the same time; what is not known counts as given."""
    key = (id(kube), namespace)
    known = _reviews.get(key, lambda: _review(kube, namespace), until_s=until_s)
    return frozenset(right for right, is_given in (known or {}).items() if not is_given)


def refusal(right: Right, namespace: str) -> str:
    """`needs patch on rayclusters in namespace ml: rule 1 of cluster_templates/rbac.yaml`."""
    return (
        f"Needs {right.verb} on {right.resource} in namespace {namespace}:"
        f" rule {right.rule} of {RBAC_FILE}"
    )


def refusals(lacking: frozenset[Right], namespace: str) -> dict[ClusterAction, str]:
    """The actions that are off, each with the reason."""
    return {
        action: refusal(right, namespace) for action, right in NEEDED.items() if right in lacking
    }


def _review(kube: Kube, namespace: str) -> dict[Right, bool]:
    answers: dict[Right, bool] = {}

    def ask(right: Right) -> None:
        try:
            answers[right] = is_allowed(kube, namespace, right)
        except KubeError:
            return

    threads = [threading.Thread(target=ask, args=(right,), daemon=True) for right in ALL]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_ANSWER_S)
    return dict(answers)


def is_allowed(kube: Kube, namespace: str, right: Right) -> bool:
    """Raises KubeError."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
    }
    answer = kube.create(
        ACCESS_REVIEWS,
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        },
        strict=False,
    )
    return bool((answer.get("status") or {}).get("allowed"))
