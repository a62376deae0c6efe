"""Reasons why a queued cluster waits in Kueue."""

from __future__ import annotations

import re
from typing import Final

from llmops_kernel.providers.kuberay.fit.capacity import Fit, podsets_of, queue_verdict
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.fit.queues import cluster_queue, local_queue, usage_text
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    condition,
    created_s,
    event_text,
    name_of,
    objects,
    one_line,
    quantities,
    text,
    whole,
)
from llmops_kernel.providers.kuberay.resource.status import is_elastic
from llmops_kernel.providers.protocol import Waiting

_UID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_UIDS: Final = re.compile(r"\s*\((?:Job)?UID: [^()]*\)")
_PATIENCE_S: Final = 10.0
"""Patience with Kueue, which creates the workload within a second or two."""


def queue_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return the reasons; empty for a cluster without a queue and for one that was admitted."""
    if not observation.queue:
        return []
    if not _is_held(observation):
        return _slice_waits(observation)
    workload = workload_of(observation)
    if workload is not None and condition(workload, "Admitted").get("status") == "True":
        return []
    waiting = _queue_fault(observation) or _workload_waits(workload, observation)
    return [waiting] if waiting else []


def _is_held(observation: ClusterObservation) -> bool:
    spec = observation.raycluster.get("spec")
    return isinstance(spec, dict) and (spec.get("suspend") is True or observation.is_elsewhere)


def workload_of(observation: ClusterObservation) -> Obj | None:
    """Return the newest Workload that Kueue has created for this very cluster."""
    return max(
        _own_workloads(observation), key=lambda workload: created_s(workload) or 0.0, default=None
    )


def _own_workloads(observation: ClusterObservation) -> list[Obj]:
    uid = text(observation.raycluster, "metadata", "uid")
    return [
        workload
        for workload in observation.workloads or ()
        for owner in objects(workload, "metadata", "ownerReferences")
        if owner.get("kind") == "RayCluster"
        and owner.get("name") == observation.name
        and (not uid or owner.get("uid") in (uid, None, ""))
    ]


def _slice_waits(observation: ClusterObservation) -> list[Waiting]:
    """Return why the new workers of an elastic cluster, which runs, are held back.

    Kueue makes another Workload of the new size, a slice, and keeps the admitted one until the
    new one is admitted.
    """
    if not is_elastic(observation.raycluster):
        return []
    for workload in _own_workloads(observation):
        ended_kinds = ("Admitted", "Finished")
        if not any(condition(workload, kind).get("status") == "True" for kind in ended_kinds):
            waiting = _check(workload, observation) or _no_quota(
                workload, observation, subject=f"workload {name_of(workload)} of its new size waits"
            )
            return [waiting]
    return []


# The queue itself


def _queue_fault(observation: ClusterObservation) -> Waiting | None:
    name = observation.queue
    if observation.kueue is not None and not observation.kueue:
        return _stuck(
            f"it requests queue {name}, but Kueue is not installed",
            "ask an administrator to install Kueue, or remove `queue` from the template",
        )
    if observation.local_queues is None:
        return None
    queue = local_queue(observation)
    if queue is None:
        existing = ", ".join(sorted(name_of(q) for q in observation.local_queues if name_of(q)))
        return _stuck(
            f"there is no queue {name} in the namespace (existing: {existing or 'none'})",
            "change `queue` in the template"
            + (
                f" to one of {existing}"
                if existing
                else ", or ask an administrator to create a LocalQueue"
            ),
        )
    behind = text(queue, "spec", "clusterQueue")
    if observation.cluster_queues is not None and behind:
        target = cluster_queue(observation)
        if target is None:
            return _stuck(
                f"queue {name} refers to ClusterQueue {behind}, which does not exist",
                "ask an administrator to create the ClusterQueue or to correct the LocalQueue",
            )
        if fault := _inactive(target, f"ClusterQueue {behind}"):
            return fault
    return _inactive(queue, f"queue {name}")


def _inactive(queue: Obj, queue_text: str) -> Waiting | None:
    policy = text(queue, "spec", "stopPolicy")
    if policy and policy != "None":
        return _stuck(
            f"{queue_text} is stopped (stopPolicy {policy})",
            "ask an administrator to start it again",
        )
    active = condition(queue, "Active")
    if active.get("status") != "False":
        return None
    detail = one_line(text(active, "message") or text(active, "reason"))
    return _stuck(
        f"{queue_text} is not active{f': {detail}' if detail else ''}",
        "ask an administrator to repair it",
    )


# The workload


def _workload_waits(workload: Obj | None, observation: ClusterObservation) -> Waiting | None:
    if workload is None:
        return _no_workload(observation)
    spec = workload.get("spec")
    if isinstance(spec, dict) and spec.get("active") is False:
        return _stuck(
            f"its workload was removed from queue {observation.queue} (deactivated)"
            f"{_said(workload, observation)}",
            "a user, or too many evictions, deactivated it; `llmops resume` queues it again",
        )
    if check := _check(workload, observation):
        return check
    reserved = condition(workload, "QuotaReserved")
    if reserved.get("status") == "True":
        return Waiting(
            message=f"queue {observation.queue} has reserved its quota; Kueue is about to start it",
            kind="queue",
        )
    return _no_quota(workload, observation)


def _no_workload(observation: ClusterObservation) -> Waiting | None:
    # A resumed or resized cluster gets a new workload, however old it is.
    waited_s = observation.unchanged_s or 0.0
    if observation.workloads is None or waited_s < _PATIENCE_S:
        return Waiting(message=f"it waits for queue {observation.queue}", kind="queue")
    event = next((e for e in observation.own_events() if text(e, "type") == "Warning"), None)
    detail = f": {one_line(event_text(event))}" if event else ""
    return _stuck(
        f"Kueue has created no workload for it in {waited_s:.0f} s{detail}",
        "ask an administrator to enable the integration ray.io/raycluster in Kueue's configuration",
    )


def _check(workload: Obj, observation: ClusterObservation) -> Waiting | None:
    """Return an admission check of Kueue (a worker cluster, new nodes) that has not passed yet."""
    if condition(workload, "QuotaReserved").get("status") != "True":
        return None
    for check in objects(workload, "status", "admissionChecks"):
        state = text(check, "state")
        if state == "Ready":
            continue
        detail = _readable(text(check, "message"), observation)
        reported = f"admission check {text(check, 'name')} is {state or 'not known'}"
        return Waiting(
            message=f"queue {observation.queue} has reserved its quota; {reported}"
            f"{f': {detail}' if detail else ''}",
            remedy="wait for it; `kubectl describe admissionchecks` shows more",
            kind="queue",
            is_stuck=state == "Rejected",
        )
    return None


def _no_quota(
    workload: Obj, observation: ClusterObservation, *, subject: str = "it waits"
) -> Waiting:
    reserved = condition(workload, "QuotaReserved")
    detail = _readable(text(reserved, "message"), observation)
    parts = [
        _evicted(workload, observation),
        _use(workload, observation),
        detail,
        _behind(observation),
    ]
    never = "maximum capacity" in detail or _is_too_much(observation)
    first = f"{subject} for quota of queue {observation.queue}"
    return Waiting(
        message="; ".join([first, *filter(None, parts)]),
        remedy="request less, or use another queue: this one can never provide so much"
        if never
        else "wait, suspend a cluster of the queue (`llmops ls`), request less, or set another"
        " queue or queue_priority",
        kind="quota",
        is_stuck=never,
    )


def _is_too_much(observation: ClusterObservation) -> bool:
    """Return whether even the empty queue, including all that others lend, could not provide it."""
    podsets = podsets_of(observation.raycluster)
    verdict = queue_verdict(
        podsets, observation.queue, observation.local_queues, observation.cluster_queues
    )
    return verdict.fit is Fit.NEVER


def _evicted(workload: Obj, observation: ClusterObservation) -> str:
    evicted = condition(workload, "Evicted")
    if evicted.get("status") != "True":
        return ""
    preempted = condition(workload, "Preempted")
    reported = preempted if preempted.get("status") == "True" else evicted
    detail = _readable(text(reported, "message") or text(reported, "reason"), observation)
    verb = "preempted" if text(evicted, "reason") == "Preempted" else "evicted"
    return f"it was {verb}{f': {detail}' if detail else ''}"


def _said(workload: Obj, observation: ClusterObservation) -> str:
    evicted = condition(workload, "Evicted")
    detail = _readable(text(evicted, "message"), observation)
    return f": {detail}" if detail else ""


def _readable(message: str, observation: ClusterObservation) -> str:
    """Return Kueue's words in one line, with the names of clusters in place of uids."""
    names: dict[str, str] = {}
    for workload in observation.workloads or ():
        owners = objects(workload, "metadata", "ownerReferences")
        name = next((text(owner, "name") for owner in owners), name_of(workload))
        for uid in (text(workload, "metadata", "uid"), *(text(owner, "uid") for owner in owners)):
            names[uid] = name

    def named(match: re.Match[str]) -> str:
        cluster_name = next((names[uid] for uid in _UID.findall(match[0]) if uid in names), "")
        return f" of cluster {cluster_name}" if cluster_name else ""

    def alone(match: re.Match[str]) -> str:
        return names.get(match[0], f"{match[0][:8]}…")

    return one_line(_UID.sub(alone, _UIDS.sub(named, message)))


def _use(workload: Obj, observation: ClusterObservation) -> str:
    """Return the use of the scarcest resource that it requests: accelerators before CPUs."""
    resources: dict[str, None] = {}
    for podset in objects(workload, "spec", "podSets"):
        for container in objects(podset, "template", "spec", "containers"):
            resources |= dict.fromkeys(quantities(container, "resources", "requests"))
            resources |= dict.fromkeys(quantities(container, "resources", "limits"))
    for resource in sorted(resources, key=lambda name: ("/" not in name, name)):
        if reported := usage_text(observation, resource):
            return f"{reported} {resource}"
    return ""


def _behind(observation: ClusterObservation) -> str:
    """Return how many wait in the queue; Kueue counts this one too."""
    pending = whole(local_queue(observation), "status", "pendingWorkloads")
    return f"{pending} wait in the queue" if pending and pending > 1 else ""


def _stuck(message: str, remedy: str) -> Waiting:
    return Waiting(message=message, remedy=remedy, kind="queue", is_stuck=True)
