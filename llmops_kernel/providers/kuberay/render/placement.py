"""Which nodes the pods may use: a template's selectors, tolerations, affinity and spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llmops_kernel.config.models.kuberay_pods import HeadSettings, PodSettings, WorkerGroup
from llmops_kernel.providers.kuberay.resource import names

Raw = dict[str, Any]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SPOT_TAINTS: Final = (
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
"""Taints of spot nodes; AWS sets none by default."""
_SPOT_LABELS: Final = (
    *_SPOT_TAINTS,
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
)


def placement(settings: PodSettings, *, cluster: str, group: str) -> Raw:
    """Return the fields of a pod's spec; those at their default are omitted."""
    own = {names.RAY_CLUSTER_LABEL: cluster, names.RAY_GROUP_LABEL: group}
    fields = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": _tolerations(settings),
        "affinity": _affinity(settings, own),
        "topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": own}, **raw} for raw in settings.topology_spread
        ],
        "priorityClassName": settings.priority_class,
    }
    return {name: value for name, value in fields.items() if value}


def _tolerations(settings: PodSettings) -> list[Raw]:
    found = [dict(raw) for raw in settings.tolerations]
    if isinstance(settings, WorkerGroup):
        if settings.pod_gpus:
            # GPU nodes are tainted with the name of their resource nearly everywhere.
            found.append(_tolerate(settings.gpu_resource))
        if settings.spot:
            found += [_tolerate(key, value) for key, value in _SPOT_TAINTS]
    return [raw for index, raw in enumerate(found) if raw not in found[:index]]


def _tolerate(key: str, value: str | None = None) -> Raw:
    if value is None:
        return {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _affinity(settings: PodSettings, own: Mapping[str, str]) -> Raw:
    affinity = dict(settings.affinity)
    if settings.one_per_node and not isinstance(settings, HeadSettings):
        term = {
            "labelSelector": {"matchLabels": dict(own)},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = dict(affinity.get("podAntiAffinity") or {})
        affinity["podAntiAffinity"] = {**anti, _REQUIRED: [*(anti.get(_REQUIRED) or []), term]}
    if isinstance(settings, WorkerGroup) and settings.spot:
        node = dict(affinity.get("nodeAffinity") or {})
        affinity["nodeAffinity"] = {**node, _REQUIRED: _on_spot(node.get(_REQUIRED) or {})}
    return affinity


def _on_spot(wanted: Mapping[str, Any]) -> Raw:
    """Require spot nodes. Terms are alternatives, so each of the user's gets each cloud's label."""
    terms = wanted.get("nodeSelectorTerms") or [{}]
    return {
        "nodeSelectorTerms": [
            {
                **term,
                "matchExpressions": [
                    *(term.get("matchExpressions") or []),
                    {"key": key, "operator": "In", "values": [value]},
                ],
            }
            for term in terms
            for key, value in _SPOT_LABELS
        ]
    }
