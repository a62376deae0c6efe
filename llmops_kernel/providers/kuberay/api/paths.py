"""Paths and query parameters of the Kubernetes API for the resources that we use."""

from __future__ import annotations

import re
import shlex
from typing import Final
from urllib.parse import quote

from llmops_kernel.providers.kuberay.resource import names

RAY_API = "ray.io/v1"
RAYCLUSTER_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def api_path(group_version: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return the path of any resource; `group_version` is `v1` or `ray.io/v1`."""
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{scope}/{plural}" + (f"/{quote(name, safe='')}" if name else "")


def raycluster_path(namespace: str, name: str = "") -> str:
    return api_path(RAY_API, "rayclusters", namespace, name)


def pods_path(namespace: str, name: str = "") -> str:
    return api_path("v1", "pods", namespace, name)


def services_path(namespace: str, name: str = "") -> str:
    return api_path("v1", "services", namespace, name)


def service_proxy_path(namespace: str, service: str, port: str) -> str:
    """Return a path below which everything reaches the service's port, given by name or number."""
    return f"{services_path(namespace)}/{service}:{port}/proxy"


def secrets_path(namespace: str, name: str = "") -> str:
    return api_path("v1", "secrets", namespace, name)


def quotas_path(namespace: str) -> str:
    return api_path("v1", "resourcequotas", namespace)


def events_path(namespace: str) -> str:
    return api_path("v1", "events", namespace)


def nodes_path(name: str = "") -> str:
    return api_path("v1", "nodes", "", name)


def namespace_path(name: str) -> str:
    return api_path("v1", "namespaces", "", name)


def object_path(body: dict[str, object], *, namespace: str = "", named: bool = True) -> str:
    """Return the path of an object in a manifest: a RayCluster or what it owns."""
    metadata = body.get("metadata")
    meta = metadata if isinstance(metadata, dict) else {}
    kind = str(body.get("kind", "")).lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    scope = str(meta.get("namespace") or namespace)
    name = str(meta.get("name", "")) if named else ""
    return api_path(str(body.get("apiVersion", "v1")), plural, scope, name)


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of a list or a watch."""
    params = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in params.items() if value}


def write_params(*, dry_run: bool, strict: bool) -> dict[str, str | int]:
    """Return the query parameters of a change; `strict` refuses unknown fields."""
    params: dict[str, str | int] = {"fieldManager": names.FIELD_MANAGER}
    if strict:
        params["fieldValidation"] = "Strict"
    if dry_run:
        params["dryRun"] = "All"
    return params


# --- Context and namespace in the kubectl and helm commands of remedies ---


IN_CLUSTER: Final = "in-cluster"
"""Name of the context of a process that runs in a pod without a kubeconfig."""
INSTALL_KUBERAY: Final = (
    "`helm repo add kuberay https://ray-project.github.io/kuberay-helm/ &&"
    " helm install kuberay-operator kuberay/kuberay-operator` installs it"
)
_KUBECTL: Final = re.compile(r"`kubectl (?!--context |config )([^`]*)")
_HELM: Final = re.compile(r"\bhelm install ")
_WITHOUT_NAMESPACE: Final = re.compile(
    r"auth|version|\w+ (namespace|node|priorityclasses|storageclass|admissionchecks)\b"
)


def with_scope(remedy: str, *, context: str, namespace: str = "") -> str:
    """Add the context and the namespace to the commands in a remedy.

    A pod without a kubeconfig has no contexts to name.
    """
    place = "" if context == IN_CLUSTER else f"--context {shlex.quote(context)} "

    def scoped(match: re.Match[str]) -> str:
        namespace_option = (
            "" if _WITHOUT_NAMESPACE.match(match[1]) or not namespace else f"-n {namespace} "
        )
        return f"`kubectl {place}{namespace_option}{match[1]}"

    remedy = _KUBECTL.sub(scoped, remedy)
    helm = place.replace("--context", "--kube-context")
    return _HELM.sub(lambda match: f"{match[0]}{helm}", remedy)
