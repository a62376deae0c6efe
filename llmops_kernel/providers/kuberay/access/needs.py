"""What a user of a template's clusters needs to be allowed, and what is off without it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.kuberay.api.rbac import RULES
from llmops_kernel.providers.kuberay.resource import names

RAY: Final = "ray.io"
KUEUE: Final = "kueue.x-k8s.io"
_LONGEST_PROXIED: Final = 40
"""KubeRay shortens the names of Services of clusters with longer names."""


@dataclass(frozen=True)
class Need:
    """Verbs on one resource, for one purpose."""

    verbs: tuple[str, ...]
    resource: str
    off: str
    """What does not work without it."""
    group: str = ""
    name: str = ""
    """The only object that it is needed for; empty for all objects in the namespace."""
    is_cluster_wide: bool = False

    @property
    def rule(self) -> int | None:
        """Return the number of the rule in rbac.yaml; None for what only a ClusterRole grants."""
        return None if self.is_cluster_wide else RULES.get((self.group, self.resource))


def needs_of(template: KubeRayTemplate, *, lacks_auth: bool = False) -> tuple[Need, ...]:
    """Return what its clusters need in their namespace, and then cluster-wide what helps.

    `lacks_auth`: the installed CRD has no `authOptions`, so `up` creates the token's Secret.
    """
    return (*_of_cluster(), *_of_ray(template, lacks_auth), *_of_parts(template), *_cluster_wide())


def _of_cluster() -> Iterator[Need]:
    # Not limited to one name: which actions are offered is asked once for the whole namespace.
    yield Need(("get", "list", "watch"), "rayclusters", "all: `ls`, `status`, Lab's list", RAY)
    yield Need(("create",), "rayclusters", "`up` of a new cluster", RAY)
    yield Need(("patch",), "rayclusters", "scale, suspend, resume, keep, apply", RAY)
    yield Need(("delete",), "rayclusters", "`llmops delete`", RAY)
    yield Need(("get", "list", "watch"), "pods", "why a cluster waits; ready workers by group")
    yield Need(("get",), "pods/log", "why a container ended")
    yield Need(("list", "watch"), "events", "why a cluster waits")
    yield Need(("get",), "namespaces", "whether the namespace is being deleted")
    yield Need(("get", "list"), "resourcequotas", "which quota a cluster waits for")
    yield Need(("get", "list"), "persistentvolumeclaims", "which volume a cluster waits for")


def _of_ray(template: KubeRayTemplate, lacks_auth: bool) -> Iterator[Need]:
    service = names.head_service(template.name)
    is_known = len(template.name) <= _LONGEST_PROXIED and not template.raycluster
    port = f"{service}:{names.DASHBOARD_PORT_NAME}" if is_known else ""
    yield Need(("get",), "services/proxy", "runs, logs, live journals, READY", name=port)
    yield Need(("create",), "services/proxy", "`submit`, `stop`", name=port)
    yield Need(("update",), "services/proxy", "upload of code with `submit`", name=port)
    yield Need(("delete",), "services/proxy", "removal of jobs that ended", name=port)
    secret = "" if template.raycluster else names.token_secret(template.name)
    yield Need(("get",), "secrets", "all access to Ray: its token is there", name=secret)
    if lacks_auth:
        # A name cannot limit `create`: the API server does not know it then.
        yield Need(("create",), "secrets", "`up`: KubeRay before 1.5 makes no token")
    if template.access.way == "port-forward":
        yield Need(("get", "create"), "pods/portforward", "all access to Ray")


def _of_parts(template: KubeRayTemplate) -> Iterator[Need]:
    if template.warm.enabled:
        own = names.warm_config_map(template.name)
        yield Need(("create",), "configmaps", "`up`: warm workers")
        yield Need(("get", "patch"), "configmaps", "`apply`: warm workers", name=own)
    if template.queue:
        for resource in ("localqueues", "workloads"):
            yield Need(("list",), resource, "the position in the queue", KUEUE)
    if template.network_policy:
        group, own = "networking.k8s.io", names.network_policy(template.name)
        yield Need(("create",), "networkpolicies", "`up`: the NetworkPolicy", group)
        yield Need(("get", "patch"), "networkpolicies", "`apply`: the NetworkPolicy", group, own)
    if template.tls.issuer:
        group, own = "cert-manager.io", names.tls_secret(template.name)
        yield Need(("create",), "certificates", "`up`: TLS", group)
        yield Need(("get", "patch"), "certificates", "`apply`: TLS", group, own)
    if template.idle.suspend_after_s or template.idle.time_to_live_s:
        yield Need(("create",), "events", "what an idle guard did, for `kubectl`")


def _cluster_wide() -> Iterator[Need]:
    yield Need(("list",), "nodes", "why no node fits, free GPUs", is_cluster_wide=True)
    yield Need(("list",), "pods", "free GPUs of nodes", is_cluster_wide=True)
    off = "the quota behind a queue"
    yield Need(("get", "list"), "clusterqueues", off, KUEUE, is_cluster_wide=True)
    group, crd = "apiextensions.k8s.io", "rayclusters.ray.io"
    off = "nothing: dry runs replace it"
    yield Need(("get",), "customresourcedefinitions", off, group, crd, is_cluster_wide=True)
