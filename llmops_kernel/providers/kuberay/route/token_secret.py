"""Which Secret has a cluster's token: one that says so itself, not any that the RayCluster names.

Whoever may change a RayCluster chooses the Secret's name and the head that gets its content, and
may be somebody who cannot read Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    fields,
    labels,
    objects,
    one_line,
    text,
)

Raw = Mapping[str, Any]
_SHOWN: Final = 253


@dataclass(frozen=True)
class TokenSecret:
    """The name that a RayCluster gives, and what the Secret of that name must say."""

    name: str
    cluster: str
    uid: str
    own_name: str = ""
    """The name in this user's own template of the cluster, which needs no further proof."""

    def require(self, secret: Obj) -> None:
        """Raise ClusterUnreachableError if the Secret is not this cluster's."""
        if self.name == self.own_name or self._is_named_by(secret):
            return
        namespace = text(secret, "metadata", "namespace")
        shown = one_line(self.name, limit=_SHOWN)
        raise ClusterUnreachableError(
            f"RayCluster {self.cluster} names Secret {shown} for Ray's token, but that Secret does"
            f" not belong to the cluster: the RayCluster does not own it, and its label"
            f" {names.RAY_CLUSTER_LABEL} is not {self.cluster}. Nothing of it was sent",
            remedy=f"if the Secret is for this cluster: `kubectl -n {namespace} label secret"
            f" {shown} {names.RAY_CLUSTER_LABEL}={self.cluster}`, or set"
            " raycluster.authOptions.secretName in your own template of the cluster, and run"
            " `llmops up` with it; else ask who changed the RayCluster",
        )

    def _is_named_by(self, secret: Obj) -> bool:
        owners = objects(secret, "metadata", "ownerReferences")
        if self.uid and any(text(owner, "uid") == self.uid for owner in owners):
            return True
        # KubeRay sets it on the Secrets that it makes; whoever may set it may read the Secret.
        own = labels(secret, "metadata", "labels")
        return own.get(names.RAY_CLUSTER_LABEL) == self.cluster


def token_secret_of(raycluster: Raw, *, name: str, own_name: str = "") -> TokenSecret | None:
    """Return the Secret with Ray's token; None if the cluster requires none.

    Raises ClusterUnreachableError for a cluster that accepts no token of ours.
    """
    found = _name(raycluster, cluster=name)
    if found is None:
        return None
    return TokenSecret(found, name, text(raycluster, "metadata", "uid"), own_name)


def _name(raycluster: Raw, *, cluster: str) -> str | None:
    options = (raycluster.get("spec") or {}).get("authOptions") or {}
    if options.get("enableK8sTokenAuth"):
        raise ClusterUnreachableError(
            f"RayCluster {cluster} expects Kubernetes credentials instead of Ray's token, and"
            f" llmops sends Kubernetes credentials to the API server only",
            remedy="set authOptions.mode: token without enableK8sTokenAuth",
        )
    if options.get("mode") == "token":
        return str(options.get("secretName") or names.token_secret(cluster))
    return _name_in_pod(raycluster)


def _name_in_pod(raycluster: Raw) -> str | None:
    """Return the Secret in the head's variables: a CRD without authentication needs them."""
    pod = dig(raycluster, "spec", "headGroupSpec", "template", "spec")
    for variable in objects(next(iter(objects(pod, "containers")), {}), "env"):
        if variable.get("name") == "RAY_AUTH_TOKEN":
            reference = fields(variable, "valueFrom", "secretKeyRef")
            if reference.get("key") == names.TOKEN_KEY:
                return text(reference, "name") or None
    return None
