"""Reasons why pods of a cluster are not ready; each reason is reported once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from llmops_kernel.providers.kuberay.api.errors import refusal
from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation, newest
from llmops_kernel.providers.kuberay.resource.names import RAY_GROUP_LABEL, RAY_NODE_TYPE_LABEL
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    condition,
    dig,
    event_text,
    fields,
    labels,
    name_of,
    one_line,
    text,
    whole,
)
from llmops_kernel.providers.kuberay.resource.status import expected_pods, is_behind, worker_groups
from llmops_kernel.providers.kuberay.waiting.containers import container_reason, ended_reason
from llmops_kernel.providers.kuberay.waiting.scheduling import unscheduled_reason
from llmops_kernel.providers.protocol import Waiting

_CREATION_PATIENCE_S: Final = 20.0
"""The operator creates pods within a second or two of a change."""


@dataclass
class _Affected:
    """The pods that a reason applies to."""

    head: bool = False
    workers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    name: str
    expected: int
    pods: tuple[Obj, ...]


def groups_of(observation: ClusterObservation) -> list[Group]:
    """Return the worker groups of the spec with their pods; suspended groups want none."""
    groups = []
    for group in worker_groups(observation.raycluster):
        name = text(group, "groupName")
        pods = [pod for pod in workers(observation) if _group(pod) == name and _counts(pod)]
        groups.append(Group(name, expected_pods(group), tuple(pods)))
    return groups


def heads(observation: ClusterObservation) -> list[Obj]:
    return [pod for pod in observation.pods if _type(pod) == "head" and _counts(pod)]


def workers(observation: ClusterObservation) -> list[Obj]:
    return [pod for pod in observation.pods if _type(pod) == "worker"]


def is_ready(pod: Obj) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not _is_terminating(pod)


def pod_reasons(observation: ClusterObservation) -> list[Waiting]:
    """Return one reason for each cause; that of the head and of the most workers comes first."""
    if "pods" in (*observation.denied, *observation.silent):
        return _unseen(observation)
    causes: dict[Waiting, _Affected] = {}
    head = heads(observation)
    for pod in head:
        if not is_ready(pod) and (cause := _reason_of(pod, observation)):
            causes.setdefault(cause, _Affected()).head = True
    if not head:
        causes.setdefault(_missing_reason(observation, is_head=True), _Affected()).head = True
    for group in groups_of(observation):
        _count_group(group, observation, causes)
    return [
        _text(cause, affected, observation)
        for cause, affected in sorted(causes.items(), key=_order)
    ]


def _unseen(observation: ClusterObservation) -> list[Waiting]:
    """Report the operator's counts if pods are hidden: a pod that is not seen is not missing."""
    status = fields(observation.raycluster, "status")
    head = condition(observation.raycluster, "HeadPodReady").get("status")
    # A status omits zeros.
    expected = whole(status, "desiredWorkerReplicas") or 0
    late = expected - (whole(status, "readyWorkerReplicas") or 0)
    parts = ["the head"] if head != "True" else []
    parts += [f"{late} of {expected} worker{'' if expected == 1 else 's'}"] if late > 0 else []
    if not parts:
        return []
    verb = "waits" if parts == ["the head"] or (len(parts) == 1 and late == 1) else "wait"
    reported = (
        f"{' and '.join(parts)} {verb}; the reason is unknown because the pods cannot be listed"
    )
    return [Waiting(message=reported[:1].upper() + reported[1:], kind="hidden")]


def _count_group(
    group: Group, observation: ClusterObservation, causes: dict[Waiting, _Affected]
) -> None:
    causes_of_pods = [(_reason_of(pod, observation), 1) for pod in group.pods if not is_ready(pod)]
    if (missing := group.expected - len(group.pods)) > 0:
        causes_of_pods.append((_missing_reason(observation, is_head=False), missing))
    for cause, count in causes_of_pods:
        if cause is not None:
            workers = causes.setdefault(cause, _Affected()).workers
            workers[group.name] = workers.get(group.name, 0) + count


def _order(item: tuple[Waiting, _Affected]) -> tuple[bool, bool, bool, int]:
    """Sort key: a reason that only waits for others says least and comes last."""
    cause, affected = item
    follows = cause.kind in ("head", "progress")
    return follows, not cause.is_stuck, not affected.head, -sum(affected.workers.values())


def _text(cause: Waiting, affected: _Affected, observation: ClusterObservation) -> Waiting:
    subject, is_many = _subject(affected, observation)
    verb = "wait" if is_many else "waits"
    line = f"{subject[:1].upper()}{subject[1:]} {verb}: {cause.message}"
    return cause.model_copy(update={"message": line})


def _subject(affected: _Affected, observation: ClusterObservation) -> tuple[str, bool]:
    parts = ["the head"] if affected.head else []
    expected = {
        group.name: max(group.expected, len(group.pods)) for group in groups_of(observation)
    }
    count = sum(affected.workers.values())
    if count:
        names = list(affected.workers)
        names_group = len(expected) > 1 and len(names) == 1
        total = expected.get(names[0], count) if names_group else sum(expected.values())
        of_group = f" of group {names[0]}" if names_group else ""
        parts.append(f"{count} of {total} worker{'' if total == 1 else 's'}{of_group}")
    return " and ".join(parts), count > 1 or len(parts) > 1


def _reason_of(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    """Return the most informative reason why that pod is not ready."""
    if _is_terminating(pod):
        return _terminating_reason(pod, observation)
    if text(pod, "status", "phase") == "Failed":
        return ended_reason(pod, observation)
    return (
        _node_reason(pod, observation)
        or container_reason(pod, observation)
        or unscheduled_reason(pod, observation)
        or _starting(pod)
    )


def _terminating_reason(pod: Obj, observation: ClusterObservation) -> Waiting:
    node = _node_reason(pod, observation)
    if node is not None:
        return node
    return Waiting(message="the old pod is being deleted", kind="progress")


def _node_reason(pod: Obj, observation: ClusterObservation) -> Waiting | None:
    """Return a reason if the pod's node is gone or unhealthy."""
    on = text(pod, "spec", "nodeName")
    if not on or observation.nodes is None:
        return None
    node = next((node for node in observation.nodes if name_of(node) == on), None)
    if node is None:
        return Waiting(
            message=f"node {on} no longer exists",
            remedy="KubeRay creates a new pod once Kubernetes has deleted the old one (about 5"
            " min);"
            f" to do so now: `kubectl delete pod {name_of(pod)} --force`",
            kind="node",
        )
    ready = condition(node, "Ready")
    if ready.get("status") not in ("False", "Unknown"):
        return None
    detail = one_line(text(ready, "message") or text(ready, "reason"))
    return Waiting(
        message=f"node {on} is not ready{f': {detail}' if detail else ''}",
        remedy="wait for the node, or ask an administrator to check it: `kubectl describe node"
        f" {on}`; its pods are evicted after about 5 min",
        kind="node",
    )


def _missing_reason(observation: ClusterObservation, *, is_head: bool) -> Waiting:
    """Return why a pod does not exist: the API server rejected it, or it is being created."""
    for message in _creation_faults(observation, is_head=is_head):
        if waiting := refusal(message):
            return waiting
        return Waiting(
            message=f"the pods could not be created: {one_line(message)}",
            remedy="this is the API server's message: correct in the template what it names",
            kind="operator",
            is_stuck=True,
        )
    return _late_operator(observation) or Waiting(
        message="the operator has not created the pods yet", kind="progress"
    )


def _late_operator(observation: ClusterObservation) -> Waiting | None:
    """Return that an operator that knows the change has created nothing for long.

    KubeRay 1.7 waits 300 s where a change met pods that it was still deleting
    (`NotSatisfiedGroupExpectations` in its log).
    """
    passed_s = observation.unchanged_s
    if passed_s is None or passed_s < _CREATION_PATIENCE_S or is_behind(observation.raycluster):
        return None
    tens = int(passed_s // 10) * 10  # Progress is printed whenever the sentence changes.
    return Waiting(
        message=f"the operator has not created the pods in {tens} s since the last change",
        remedy="KubeRay waits up to 5 min where a change comes while it deletes pods: wait until"
        " then; if it persists, check the operator's log",
        kind="operator",
    )


def _creation_faults(observation: ClusterObservation, *, is_head: bool) -> Iterable[str]:
    reason = "FailedToCreateHeadPod" if is_head else "FailedToCreateWorkerPod"
    if event := newest(observation.own_events(), reason, reason.replace("To", "", 1)):
        yield event_text(event)
    failed = condition(observation.raycluster, "ReplicaFailure")
    if failed.get("status") == "True" and text(failed, "message"):
        yield text(failed, "message")
    if reported := text(observation.raycluster, "status", "reason"):
        yield reported


def _starting(pod: Obj) -> Waiting:
    if text(pod, "spec", "nodeName"):
        return Waiting(message="the pod is starting", kind="progress")
    return Waiting(message="the pod is not scheduled yet", kind="progress")


def _is_terminating(pod: Obj) -> bool:
    return dig(pod, "metadata", "deletionTimestamp") is not None


def _counts(pod: Obj) -> bool:
    """Return whether the pod counts.

    The operator replaces a worker that ended; until then it does.
    """
    return text(pod, "status", "phase") != "Succeeded"


def _type(pod: Obj) -> str:
    return labels(pod, "metadata", "labels").get(RAY_NODE_TYPE_LABEL, "")


def _group(pod: Obj) -> str:
    return labels(pod, "metadata", "labels").get(RAY_GROUP_LABEL, "")


def ready_counts(observation: ClusterObservation) -> tuple[int, int]:
    """Return the numbers of worker pods that are ready, and that are wanted."""
    groups = groups_of(observation)
    ready: Sequence[Obj] = [pod for group in groups for pod in group.pods if is_ready(pod)]
    return len(ready), sum(group.expected for group in groups)
