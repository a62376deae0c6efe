"""Rights that the user of a template's clusters needs, and what is off without each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.document import dump
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.capabilities import RightState
from llmops_kernel.providers.kuberay.api import features, kubeconfig
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.rbac import RULES
from llmops_kernel.providers.kuberay.api.rights import Right, is_allowed
from llmops_kernel.providers.kuberay.render.dry_run import usual_namespace
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
    """Feature that does not work without it."""
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
    return (
        *_of_cluster(),
        *_of_ray(template, lacks_auth),
        *_needs_of_parts(template),
        *_cluster_wide(),
    )


def _of_cluster() -> Iterator[Need]:
    # Not limited to one name: which actions are offered is asked once for the whole namespace.
    yield Need(("get", "list", "watch"), "rayclusters", "all: `ls`, `status`, Lab's list", RAY)
    yield Need(("create",), "rayclusters", "`up` of a new cluster", RAY)
    yield Need(
        ("patch",),
        "rayclusters",
        "scale, suspend, resume, keep, apply, the newest run in annotations",
        RAY,
    )
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


def _needs_of_parts(template: KubeRayTemplate) -> Iterator[Need]:
    if template.warm.enabled:
        name = names.warm_config_map(template.name)
        yield Need(("create",), "configmaps", "`up`: warm workers")
        yield Need(("get", "patch"), "configmaps", "`apply`: warm workers", name=name)
    if template.queue:
        for resource in ("localqueues", "workloads"):
            yield Need(("list",), resource, "the position in the queue", KUEUE)
    if template.network_policy:
        group, name = "networking.k8s.io", names.network_policy(template.name)
        yield Need(("create",), "networkpolicies", "`up`: the NetworkPolicy", group)
        yield Need(("get", "patch"), "networkpolicies", "`apply`: the NetworkPolicy", group, name)
    if template.metrics.pod_monitor:
        group, name = "monitoring.coreos.com", names.pod_monitor(template.name)
        yield Need(("create",), "podmonitors", "`up`: the PodMonitor", group)
        yield Need(("get", "patch"), "podmonitors", "`apply`: the PodMonitor", group, name)
    if template.metrics.dashboard:
        name = names.dashboard_config_map(template.name)
        yield Need(("create",), "configmaps", "`up`: the dashboard of runs")
        yield Need(("get", "patch"), "configmaps", "`apply`: the dashboard of runs", name=name)
    if template.tls.issuer:
        group, name = "cert-manager.io", names.tls_secret(template.name)
        yield Need(("create",), "certificates", "`up`: TLS", group)
        yield Need(("get", "patch"), "certificates", "`apply`: TLS", group, name)
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


# --- Rights that this user has ---


_THREADS: Final = 16


def rights_for(
    template: KubeRayTemplate, *, namespace: str | None = None
) -> tuple[list[RightState], str]:
    """Ask in the template's first context. Raises KubeError."""
    kube = open_kube(kubeconfig.context_named(next(iter(template.contexts), None)).name)
    place = namespace or template.namespace or kube.namespace
    place_text = f"context {kube.context}, namespace {place}"
    return reviewed(kube, place, needs_of(template, lacks_auth=_lacks_auth(kube))), place_text


def _lacks_auth(kube: Kube) -> bool:
    """Return whether `up` makes Ray's token there; False where the CRD may not be read."""
    with suppress(KubeError):
        return "authOptions" in (features.lacking(kube) or ())
    return False


def reviewed(kube: Kube, namespace: str, needs: Sequence[Need]) -> list[RightState]:
    """Return each right with whether it is granted, in the order of `needs`.

    It waits for all answers. Raises KubeError if the first question is not answered.
    """
    pairs = [(need, verb) for need in needs for verb in need.verbs]
    if not pairs:
        return []
    first = _state(kube, namespace, *pairs[0], is_first=True)
    with ThreadPoolExecutor(_THREADS) as pool:
        rest = pool.map(lambda pair: _state(kube, namespace, *pair), pairs[1:])
        return [first, *rest]


def _state(
    kube: Kube, namespace: str, need: Need, verb: str, *, is_first: bool = False
) -> RightState:
    right = Right(verb, need.resource, need.group, name=need.name)
    granted: bool | None
    try:
        granted = is_allowed(kube, "" if need.is_cluster_wide else namespace, right)
    except KubeError:
        if is_first:
            raise
        granted = None
    return RightState(
        verb=verb,
        resource=need.resource,
        group=need.group,
        name=need.name,
        rule=need.rule,
        is_cluster_wide=need.is_cluster_wide,
        is_granted=granted,
        off=need.off,
    )


# --- Roles that grant the rights ---
# Renders the Role, or the optional ClusterRole, with exactly what a template's clusters need.


Raw = dict[str, Any]
_API: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = {"user": "User", "group": "Group", "service-account": "ServiceAccount"}


def roles_for(
    template: KubeRayTemplate, *, subject: str, namespace: str | None, cluster_wide: bool
) -> str:
    """Return the YAML for a template, by default for its own namespace. Raises ConfigError."""
    needs, place = needs_of(template), namespace or usual_namespace(template)
    if cluster_wide:
        return cluster_roles(needs, namespace=place, subject=subject)
    return roles(needs, cluster=template.name, namespace=place, subject=subject)


def roles(needs: Iterable[Need], *, cluster: str, namespace: str, subject: str) -> str:
    """Return the YAML of a Role and its RoleBinding in that namespace.

    `subject` is `user:NAME`, `group:NAME` or `service-account:NAME`. Raises ConfigError.
    """
    namespaced = [need for need in needs if not need.is_cluster_wide]
    meta = {"name": f"llmops-{cluster}", "namespace": namespace}
    return _yaml("Role", meta, namespaced, subject=_subject(subject, namespace=namespace))


def cluster_roles(needs: Iterable[Need], *, namespace: str, subject: str) -> str:
    """Return the YAML of the optional ClusterRole and its binding. Raises ConfigError."""
    cluster_wide = [need for need in needs if need.is_cluster_wide]
    meta = {"name": "llmops-reader"}
    return _yaml("ClusterRole", meta, cluster_wide, subject=_subject(subject, namespace=namespace))


def _yaml(kind: str, meta: Raw, needs: Iterable[Need], *, subject: Raw) -> str:
    role = {
        "apiVersion": f"{_API}/v1",
        "kind": kind,
        "metadata": meta,
        "rules": _rules(needs),
    }
    # A binding's role cannot be changed, so each subject has a binding of its own.
    name = "-".join([meta["name"], subject["name"].lower().replace(":", "-").replace("@", "-at-")])
    binding = {
        "apiVersion": f"{_API}/v1",
        "kind": f"{kind}Binding",
        "metadata": {**meta, "name": name},
        "roleRef": {"apiGroup": _API, "kind": kind, "name": meta["name"]},
        "subjects": [subject],
    }
    return f"{dump(role)}---\n{dump(binding)}"


def _rules(needs: Iterable[Need]) -> list[Raw]:
    """Return one rule for each resource and name, its verbs in the order of need."""
    verbs: dict[tuple[str, str, str], dict[str, None]] = {}
    for need in needs:
        key = (need.group, need.resource, need.name)
        verbs.setdefault(key, {}).update(dict.fromkeys(need.verbs))
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": list(verbs_of_rule),
        }
        for (group, resource, name), verbs_of_rule in verbs.items()
    ]


def _subject(text: str, *, namespace: str) -> Raw:
    kind, colon, name = text.partition(":")
    if kind not in _SUBJECTS or not colon or not name:
        raise ConfigError(
            f"{text!r} does not say who gets the rights",
            remedy="user:NAME, group:NAME or service-account:NAME",
        )
    if kind == "service-account":
        return {"kind": _SUBJECTS[kind], "name": name, "namespace": namespace}
    return {"apiGroup": _API, "kind": _SUBJECTS[kind], "name": name}
