"""Rights of this user in a namespace, and the rule of rbac.yaml that would grant each."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from llmops_kernel.config.reading.templates import FOLDER
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError
from llmops_kernel.providers.kuberay.api.paths import ACCESS_REVIEWS
from llmops_kernel.providers.kuberay.api.refreshing_cache import RefreshingCache
from llmops_kernel.providers.protocol import ClusterAction


@dataclass(frozen=True)
class Right:
    """A verb on a resource (`services/proxy` includes its subresource)."""

    verb: str
    resource: str
    group: str = ""
    rule: int = 0
    """Number of the rule in rbac.yaml that grants it."""
    name: str = ""
    """The only object that it is asked for; empty for any."""


RAY: Final = "ray.io"
PATCH: Final = Right("patch", "rayclusters", RAY, rule=1)
DELETE: Final = Right("delete", "rayclusters", RAY, rule=1)
ALL: Final = (PATCH, DELETE)
"""Asked for in each namespace; `llmops cluster rights` asks for all that a template needs."""
NEEDED: Final = {
    ClusterAction.SUSPEND: PATCH,
    ClusterAction.RESUME: PATCH,
    ClusterAction.SCALE: PATCH,
    ClusterAction.DELETE: DELETE,
}
_PATIENCE_S: Final = 0.5
_TRIPS: Final = 6
ANSWER_S: Final = 10.0
"""Behind a slow connection an answer takes seconds; nobody waits for it but the cache."""
# Rights change rarely. But an API server that starts denies everything, and a user who asked for a
# right looks again at once.
_reviews: RefreshingCache[dict[Right, bool]] = RefreshingCache(
    refresh_after_s=300.0,
    patience_s=_PATIENCE_S,
    stale_s=3600.0,
    is_doubtful=lambda granted: len(granted) < len(ALL) or not all(granted.values()),
)


def missing(
    kube: Kube, namespace: str, *, until_s: float | None = None, patience_s: float | None = None
) -> frozenset[Right]:
    """Return the rights that are missing; unknown ones count as granted.

    Asked all at the same time, and again soon when one was denied or not answered.
    """
    key = (kube.key, namespace)
    if patience_s is None:
        patience_s = _PATIENCE_S + _TRIPS * kube.round_trip.seconds
    granted = _reviews.get(
        key, lambda: _review(kube, namespace), until_s=until_s, patience_s=patience_s
    )
    return frozenset(right for right, is_given in (granted or {}).items() if not is_given)


def refusal(right: Right, namespace: str) -> str:
    """Return `Needs patch on rayclusters in namespace ml: rule 1 of cluster_templates/rbac.yaml`"""
    return (
        f"Needs {right.verb} on {right.resource} in namespace {namespace}:"
        f" rule {right.rule} of {FOLDER}/rbac.yaml"
    )


def refusals(missing_rights: frozenset[Right], namespace: str) -> dict[ClusterAction, str]:
    """Return the actions that are not allowed, each with the reason."""
    return {
        action: refusal(right, namespace)
        for action, right in NEEDED.items()
        if right in missing_rights
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
        thread.join(ANSWER_S)
    return dict(answers)


def is_allowed(kube: Kube, namespace: str, right: Right) -> bool:
    """Return whether the user has that right. Raises KubeError."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
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
