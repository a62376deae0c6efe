"""Why a cluster is not ready: one sentence per reason, the most informative first."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.providers.dashboard.demand import demand_reasons
from llmops_kernel.providers.kuberay.api.rbac import RULES, rbac_file
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.resource.objects import (
    fields,
)
from llmops_kernel.providers.kuberay.waiting.cluster import deletion_reasons, operator_reasons
from llmops_kernel.providers.kuberay.waiting.pods import (
    heads,
    is_ready,
    pod_reasons,
    ready_counts,
)
from llmops_kernel.providers.kuberay.waiting.queue import queue_reasons
from llmops_kernel.providers.protocol import UNASKED, Waiting

_MAX = 6
CLUSTER_WIDE = {
    "nodes": "list nodes",
    "pods of other namespaces": "list pods",
    "clusterqueues": "list clusterqueues",
}
"""What no Role of a namespace can grant, and its verb and resource."""
_KUEUE = "kueue.x-k8s.io"
_OF_ROLE = {
    "pods": ("list", "", "pods"),
    "pod logs": ("get", "", "pods/log"),
    "events": ("list", "", "events"),
    "the namespace": ("get", "", "namespaces"),
    "resourcequotas": ("list", "", "resourcequotas"),
    "persistentvolumeclaims": ("list", "", "persistentvolumeclaims"),
    "workloads": ("list", _KUEUE, "workloads"),
    "localqueues": ("list", _KUEUE, "localqueues"),
}
"""Verb, API group and resource of what is hidden."""


def waiting(observation: ClusterObservation) -> tuple[Waiting, ...]:
    """Return the reasons; empty for a cluster that is ready or was suspended on purpose."""
    found = deletion_reasons(observation) or operator_reasons(observation)
    if not found:
        found = queue_reasons(observation)
        if not found and fields(observation.raycluster, "spec").get("suspend") is True:
            found = _suspending(observation)
        elif not found and not observation.is_elsewhere:
            found = [
                *pod_reasons(observation),
                *_ray_reasons(observation),
                *_demand_reasons(observation),
            ]
    reasons = [reason.model_copy(update={"message": _sentence(reason.message)}) for reason in found]
    unknowns = _unknowns(observation, reasons) if reasons else _silences(observation)
    return tuple([*_once(reasons)[:_MAX], *unknowns])


def _once(reasons: Iterable[Waiting]) -> list[Waiting]:
    return list({reason.message: reason for reason in reversed([*reasons])}.values())[::-1]


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}"


def _suspending(observation: ClusterObservation) -> list[Waiting]:
    left = len(observation.pods)
    if not left:
        return []
    message = f"its RayCluster is being suspended: {left} pod{'' if left == 1 else 's'} left"
    return [Waiting(message=message, kind="progress")]


def _ray_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return the reason if the head pod is ready, but Ray does not answer."""
    if observation.ray_answers is not False or not any(map(is_ready, heads(observation))):
        return []
    return [
        Waiting(
            message="the head pod is ready, but Ray's API does not answer",
            remedy="wait a few seconds; if it persists, check the route to it (`access` of the"
            " template, right services/proxy) and the head's log",
            kind="ray",
        )
    ]


def _demand_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return the resources that Ray waits for on a complete cluster."""
    ready, wanted = ready_counts(observation)
    report = fields(observation.ray_status, "data", "clusterStatus", "loadMetricsReport")
    return [] if ready < wanted else [*demand_reasons(report)]


def _needs_others(reasons: Iterable[Waiting]) -> bool:
    """Return whether what only a ClusterRole can grant would explain more."""
    return any(reason.kind in ("capacity", "queue", "quota", "") for reason in reasons)


def _right(what: str) -> str:
    """Return `list events (rule 5)`."""
    if what not in _OF_ROLE:
        return f"read {what}"
    verb, group, resource = _OF_ROLE[what]
    rule = RULES.get((group, resource))
    return f"{verb} {resource}{f' (rule {rule})' if rule else ''}"


def _unknowns(observation: ClusterObservation, reasons: Iterable[Waiting]) -> list[Waiting]:
    found = []
    of_role = [what for what in observation.denied if what not in CLUSTER_WIDE]
    if of_role:
        found.append(
            Waiting(
                message=f"Missing permission to {', '.join(map(_right, of_role))}",
                remedy=f"ask an administrator to grant it: {rbac_file()} has these rules",
                kind="permission",
            )
        )
    others = [what for what in observation.denied if what in CLUSTER_WIDE]
    if others and _needs_others(reasons):
        found.append(
            Waiting(
                message="Missing permission in the whole cluster to"
                f" {', '.join(CLUSTER_WIDE[what] for what in others)}",
                remedy="this is optional and needs a ClusterRole: `llmops cluster rbac TEMPLATE"
                " --for user:NAME --cluster-wide` prints it",
                kind="permission",
            )
        )
    return [*found, *_silences(observation)]


def _silences(observation: ClusterObservation) -> list[Waiting]:
    """Return what was asked for and not answered: without it the other reasons may be missing."""
    if not observation.silent:
        return []
    message = f"Did not answer in time: {', '.join(observation.silent)}"
    return [Waiting(message=message, remedy="try again", kind=UNASKED)]
