"""Reasons why a cluster is not ready: one sentence each, the most informative first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from llmops_kernel.providers.dashboard import demand_reasons
from llmops_kernel.providers.kuberay.api.paths import INSTALL_KUBERAY
from llmops_kernel.providers.kuberay.api.rbac import RULES, rbac_file
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    event_text,
    fields,
    objects,
    one_line,
    text,
    texts,
    time_s,
    whole,
)
from llmops_kernel.providers.kuberay.resource.status import is_behind
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
"""Parts that no Role of a namespace can grant, with their verb and resource."""
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
    candidates = deletion_reasons(observation) or operator_reasons(observation)
    if not candidates:
        candidates = queue_reasons(observation)
        if not candidates and fields(observation.raycluster, "spec").get("suspend") is True:
            candidates = _suspending(observation)
        elif not candidates and not observation.is_elsewhere:
            candidates = [
                *pod_reasons(observation),
                *_ray_reasons(observation),
                *_demand_reasons(observation),
            ]
    reasons = [
        reason.model_copy(update={"message": _sentence(reason.message)}) for reason in candidates
    ]
    unknowns = _unknowns(observation, reasons) if reasons else _silences(observation)
    return tuple([*_once(reasons)[:_MAX], *unknowns])


def _once(reasons: Iterable[Waiting]) -> list[Waiting]:
    return list({reason.message: reason for reason in reversed([*reasons])}.values())[::-1]


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}"


def _suspending(observation: ClusterObservation) -> list[Waiting]:
    num_left = len(observation.pods)
    if not num_left:
        return []
    message = (
        f"its RayCluster is being suspended: {num_left} pod{'' if num_left == 1 else 's'} left"
    )
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
    ready, expected = ready_counts(observation)
    report = fields(observation.ray_status, "data", "clusterStatus", "loadMetricsReport")
    return [] if ready < expected else [*demand_reasons(report)]


def _needs_others(reasons: Iterable[Waiting]) -> bool:
    """Return whether what only a ClusterRole can grant would explain more."""
    return any(reason.kind in ("capacity", "queue", "quota", "") for reason in reasons)


def _right(part: str) -> str:
    """Return `list events (rule 5)`."""
    if part not in _OF_ROLE:
        return f"read {part}"
    verb, group, resource = _OF_ROLE[part]
    rule = RULES.get((group, resource))
    return f"{verb} {resource}{f' (rule {rule})' if rule else ''}"


def _unknowns(observation: ClusterObservation, reasons: Iterable[Waiting]) -> list[Waiting]:
    result = []
    of_role = [part for part in observation.denied if part not in CLUSTER_WIDE]
    if of_role:
        result.append(
            Waiting(
                message=f"Missing permission to {', '.join(map(_right, of_role))}",
                remedy=f"ask an administrator to grant it: {rbac_file()} has these rules",
                kind="permission",
            )
        )
    cluster_wide = [part for part in observation.denied if part in CLUSTER_WIDE]
    if cluster_wide and _needs_others(reasons):
        result.append(
            Waiting(
                message="Missing permission in the whole cluster to"
                f" {', '.join(CLUSTER_WIDE[part] for part in cluster_wide)}",
                remedy="this is optional and needs a ClusterRole: `llmops cluster rbac TEMPLATE"
                " --for user:NAME --cluster-wide` prints it",
                kind="permission",
            )
        )
    return [*result, *_silences(observation)]


def _silences(observation: ClusterObservation) -> list[Waiting]:
    """Return what was asked for and not answered: without it the other reasons may be missing."""
    if not observation.silent:
        return []
    message = f"Did not answer in time: {', '.join(observation.silent)}"
    return [Waiting(message=message, remedy="try again", kind=UNASKED)]


# --- Reasons that block a RayCluster as a whole: deletion, namespace, operator ---


OPERATOR_PATIENCE_S: Final = 10.0
"""Patience with the operator, which writes a first status within a tenth of a second."""
_DELETE_PATIENCE_S: Final = 30.0
_OPERATOR: Final = ("raycluster-controller", "raycluster-controller-manager")


def deletion_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return the reason if it, or its namespace, is being deleted."""
    since_s = time_s(dig(observation.raycluster, "metadata", "deletionTimestamp"))
    if since_s is not None:
        return [_deleted(observation, since_s)]
    if text(observation.namespace, "status", "phase") != "Terminating":
        return []
    name = text(observation.raycluster, "metadata", "namespace")
    details = [
        one_line(text(item, "message"))
        for item in objects(observation.namespace, "status", "conditions")
        if item.get("status") == "True" and text(item, "message")
    ]
    return [
        Waiting(
            message=f"namespace {name} is being deleted{f': {details[0]}' if details else ''}",
            remedy="wait until it is deleted and create it again, or use another namespace",
            kind="namespace",
            is_stuck=True,
        )
    ]


def _deleted(observation: ClusterObservation, since_s: float) -> Waiting:
    passed_s = max(0.0, observation.now_s - since_s)
    finalizers = texts(observation.raycluster, "metadata", "finalizers")
    holders = ", ".join(finalizers)
    line = f"its deletion has been in progress for {passed_s:.0f} s"
    if not finalizers:
        count = len(observation.pods)
        pods = f"; {count} pod{'' if count == 1 else 's'} left" if count else ""
        return Waiting(message=f"{line}{pods}", kind="deletion")
    remedy = "the operator removes it after it has cleaned up Redis (at most 5 min)"
    if not any("gcs-ft" in name for name in finalizers):
        remedy = (
            f"the controller that set {holders} must remove it; an administrator can do so with"
            f" `kubectl edit raycluster {observation.name}`"
        )
    return Waiting(
        message=f"{line}; blocked by finalizer {holders}",
        remedy=remedy,
        kind="deletion",
        is_stuck=passed_s > 10 * _DELETE_PATIENCE_S,
    )


def operator_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return the reasons if the operator rejected the spec, is behind, or is not running."""
    if observation.is_elsewhere:
        return []
    generation = whole(observation.raycluster, "metadata", "generation")
    observed = whole(observation.raycluster, "status", "observedGeneration")
    has_status = bool(fields(observation.raycluster, "status"))
    if has_status and (observed is None or generation is None or observed >= generation):
        return []
    if rejection := _refused(observation, is_new=not has_status):
        return [rejection]
    if not has_status:
        # A refused pod has its own sentence, and the operator may write no status before it.
        return [] if any(map(_is_of_pod, observation.own_events())) else _absent(observation)
    if not is_behind(observation.raycluster):
        return []
    return [
        Waiting(
            message=f"the operator has not processed the latest change yet (generation"
            f" {observed} of {generation})",
            remedy="wait a moment; if it persists, check the log of the KubeRay operator",
            kind="operator",
        )
    ]


def _refused(observation: ClusterObservation, *, is_new: bool) -> Waiting | None:
    """Return the operator's rejection of the spec, or of a new cluster what else it failed at."""
    for event in observation.own_events():
        reason = text(event, "reason")
        if text(event, "type") != "Warning" or not _by_operator(event):
            continue
        is_spec = reason.startswith("Invalid") or reason in _REMEDIES
        if _is_of_pod(event) or not (is_new or is_spec):
            continue
        verb = "rejects the spec" if is_spec else "reports a failure"
        return Waiting(
            message=f"the operator {verb} ({reason}): {one_line(event_text(event))}",
            remedy=_REMEDIES.get(
                reason,
                "correct in the template what the message names, then run `llmops cluster apply`",
            ),
            kind="operator",
            is_stuck=True,
        )
    return None


def _is_of_pod(event: Obj) -> bool:
    """Return whether it says that a pod could not be created, by the API server's decision."""
    return bool(_POD.match(text(event, "reason")))


_POD: Final = re.compile(r"Failed(To)?Create\w*Pod$")
_REMEDIES: Final = {
    "AutoscalerServiceAccountNotFound": "create the ServiceAccount that service_account names, or"
    " remove the field from the template",
    "InvalidRayClusterMetadata": "choose another name: at most 53 lower-case letters, digits"
    " and dashes, beginning with a letter",
}


def _by_operator(event: Obj) -> bool:
    """Return whether the operator wrote the event: Kueue writes about RayClusters too."""
    by = text(event, "reportingComponent") or text(event, "reportingController")
    by = by or text(event, "source", "component")
    return not by or by in _OPERATOR or "raycluster" in by


def _absent(observation: ClusterObservation) -> list[Waiting]:
    age_s = observation.age_s
    if (
        age_s is None
        or age_s < OPERATOR_PATIENCE_S
        or any(map(_by_operator, observation.own_events()))
    ):
        return [Waiting(message="the operator has not processed it yet", kind="progress")]
    has_events = observation.events is not None
    return [
        Waiting(
            message=f"no KubeRay operator has processed it in {age_s:.0f} s: it has no status"
            + (" and no event" if has_events else ""),
            remedy=f"install KubeRay's operator ({INSTALL_KUBERAY}), or configure it to watch this"
            " namespace",
            kind="operator",
            is_stuck=True,
        )
    ]
