"""Renders the Role, or the optional ClusterRole, with exactly what a template's clusters need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.yaml_dialect import dump
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.kuberay.access.needs import Need, needs_of
from llmops_kernel.providers.kuberay.render.dry_run import usual_namespace

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
    found = [need for need in needs if not need.is_cluster_wide]
    meta = {"name": f"llmops-{cluster}", "namespace": namespace}
    return _yaml("Role", meta, found, subject=_subject(subject, namespace=namespace))


def cluster_roles(needs: Iterable[Need], *, namespace: str, subject: str) -> str:
    """Return the YAML of the optional ClusterRole and its binding. Raises ConfigError."""
    found = [need for need in needs if need.is_cluster_wide]
    meta = {"name": "llmops-reader"}
    return _yaml("ClusterRole", meta, found, subject=_subject(subject, namespace=namespace))


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
            "verbs": list(found),
        }
        for (group, resource, name), found in verbs.items()
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
