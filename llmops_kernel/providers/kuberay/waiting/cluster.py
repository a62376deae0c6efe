"""What blocks a RayCluster as a whole: deletion, namespace, operator."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.providers.kuberay.api.paths import INSTALL_KUBERAY
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
from llmops_kernel.providers.protocol import Waiting

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
    why = [
        one_line(text(item, "message"))
        for item in objects(observation.namespace, "status", "conditions")
        if item.get("status") == "True" and text(item, "message")
    ]
    return [
        Waiting(
            message=f"namespace {name} is being deleted{f': {why[0]}' if why else ''}",
            remedy="wait until it is deleted and create it again, or use another namespace",
            kind="namespace",
            is_stuck=True,
        )
    ]


def _deleted(observation: ClusterObservation, since_s: float) -> Waiting:
    passed_s = max(0.0, observation.now_s - since_s)
    finalizers = texts(observation.raycluster, "metadata", "finalizers")
    listed = ", ".join(finalizers)
    line = f"its deletion has been in progress for {passed_s:.0f} s"
    if not finalizers:
        count = len(observation.pods)
        pods = f"; {count} pod{'' if count == 1 else 's'} left" if count else ""
        return Waiting(message=f"{line}{pods}", kind="deletion")
    remedy = "the operator removes it after it has cleaned up Redis (at most 5 min)"
    if not any("gcs-ft" in name for name in finalizers):
        remedy = (
            f"the controller that set {listed} must remove it; an administrator can do so with"
            f" `kubectl edit raycluster {observation.name}`"
        )
    return Waiting(
        message=f"{line}; blocked by finalizer {listed}",
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
    if refused := _refused(observation, is_new=not has_status):
        return [refused]
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
        what = "rejects the spec" if is_spec else "reports a failure"
        return Waiting(
            message=f"the operator {what} ({reason}): {one_line(event_text(event))}",
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
    seen = observation.events is not None
    return [
        Waiting(
            message=f"no KubeRay operator has processed it in {age_s:.0f} s: it has no status"
            + (" and no event" if seen else ""),
            remedy=f"install KubeRay's operator ({INSTALL_KUBERAY}), or configure it to watch this"
            " namespace",
            kind="operator",
            is_stuck=True,
        )
    ]
