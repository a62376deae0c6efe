"""The rules of RBAC that users of clusters need: where their file is, which rule grants what."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from llmops_kernel.config.reading.templates import FOLDER, shipped_folder

NAME = "rbac.yaml"
RULES: Final = {
    ("ray.io", "rayclusters"): 1,
    ("ray.io", "rayclusters/status"): 2,
    ("", "pods"): 3,
    ("", "pods/log"): 4,
    ("", "events"): 5,
    ("", "persistentvolumeclaims"): 6,
    ("", "resourcequotas"): 6,
    ("", "services"): 7,
    ("", "services/proxy"): 8,
    ("", "secrets"): 9,
    ("", "configmaps"): 10,
    ("kueue.x-k8s.io", "localqueues"): 11,
    ("kueue.x-k8s.io", "workloads"): 11,
    ("networking.k8s.io", "networkpolicies"): 12,
    ("cert-manager.io", "certificates"): 13,
    ("", "namespaces"): 14,
    ("monitoring.coreos.com", "podmonitors"): 15,
}
"""API group and resource -> number of the rule."""


def rbac_file() -> str:
    """Return its path in this installation, which a wheel has below site-packages."""
    return str((shipped_folder() or Path(FOLDER)) / NAME)


def granted_by(resource: str, group: str) -> str:
    """Return `rule 8 of FILE`; empty if no rule of the file is for that resource."""
    rule = RULES.get((group, resource))
    return f"rule {rule} of {rbac_file()}" if rule else ""
