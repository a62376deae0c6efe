"""Why each pod of a cluster is not ready, told once for all pods of which it is true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from llmops_kernel.clusters.kuberay.names import RAY_GROUP_LABEL, RAY_NODE_TYPE_LABEL
from llmops_kernel.clusters.kuberay.objects import (
    Obj,
    condition,
    dig,
    event_text,
    fields,
    labels,
    name_of,
    objects,
    one_line,
    text,
    whole,
)
from llmops_kernel.clusters.kuberay.pending_containers import container_cause, ended_cause
from llmops_kernel.clusters.kuberay.pending_room import unscheduled_cause
from llmops_kernel.clusters.kuberay.refusals import refusal
from llmops_kernel.clusters.kuberay.world import World, newest
from llmops_kernel.clusters.provider import Waiting


@dataclass
class _Who:
    """Of whom a reason is true."""

    head: bool = False
    workers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    name: str
    wanted: int
    pods: tuple[Obj, ...]


def groups_of(world: World) -> list[Group]:
    """Worker groups of the spec with their pods; those that are suspended want none."""
    found = []
    for group in objects(world.raycluster, "spec", "workerGroupSpecs"):
        name = text(group, "groupName")
        hosts = whole(group, "numOfHosts") or 1
        least = whole(group, "minReplicas") or 0
        replicas = max(whole(group, "replicas") or 0, least)
        replicas = 0 if group.get("suspend") is True else replicas
        pods = [pod for pod in workers(world) if _group(pod) == name and _counts(pod)]
        found.append(Group(name, max(0, replicas * hosts), tuple(pods)))
    return found


def heads(world: World) -> list[Obj]:
    return [pod for pod in world.pods if _type(pod) == "head" and _counts(pod)]


def workers(world: World) -> list[Obj]:
    return [pod for pod in world.pods if _type(pod) == "worker"]


def is_ready(pod: Obj) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not _goes(pod)


def pods_wait(world: World) -> list[Waiting]:
    """One reason each, that of the head and of the most workers first."""
    if "pods" in (*world.denied, *world.silent):
        return _unseen(world)
    causes: dict[Waiting, _Who] = {}
    head = heads(world)
    for pod in head:
        if not is_ready(pod) and (cause := _cause(pod, world)):
            causes.setdefault(cause, _Who()).head = True
    if not head:
        causes.setdefault(_missing_cause(world, is_head=True), _Who()).head = True
    for group in groups_of(world):
        _count_group(group, world, causes)
    return [_told(cause, who, world) for cause, who in sorted(causes.items(), key=_order)]


def _unseen(world: World) -> list[Waiting]:
    """The operator's own counts are all there is; a pod that is not seen is not missing."""
    status = fields(world.raycluster, "status")
    head = condition(world.raycluster, "HeadPodReady").get("status")
    # Zeros are left out of a status.
    wanted = whole(status, "desiredWorkerReplicas") or 0
    late = wanted - (whole(status, "readyWorkerReplicas") or 0)
    parts = ["the head"] if head != "True" else []
    parts += [f"{late} of {wanted} worker{'' if wanted == 1 else 's'}"] if late > 0 else []
    if not parts:
        return []
    verb = "waits" if parts == ["the head"] or (len(parts) == 1 and late == 1) else "wait"
    told = f"{' and '.join(parts)} {verb}; why cannot be seen without their pods"
    return [Waiting(message=told[:1].upper() + told[1:], kind="hidden")]


def _count_group(group: Group, world: World, causes: dict[Waiting, _Who]) -> None:
    found = [(_cause(pod, world), 1) for pod in group.pods if not is_ready(pod)]
    if (missing := group.wanted - len(group.pods)) > 0:
        found.append((_missing_cause(world, is_head=False), missing))
    for cause, count in found:
        if cause is not None:
            workers = causes.setdefault(cause, _Who()).workers
            workers[group.name] = workers.get(group.name, 0) + count


def _order(item: tuple[Waiting, _Who]) -> tuple[bool, bool, bool, int]:
    """What only waits for the others tells least."""
    cause, who = item
    follows = cause.kind in ("head", "progress")
    return follows, not cause.is_stuck, not who.head, -sum(who.workers.values())


def _told(cause: Waiting, who: _Who, world: World) -> Waiting:
    subject, is_many = _subject(who, world)
    verb = "wait" if is_many else "waits"
    line = f"{subject[:1].upper()}{subject[1:]} {verb}: {cause.message}"
    return cause.model_copy(update={"message": line})


def _subject(who: _Who, world: World) -> tuple[str, bool]:
    parts = ["the head"] if who.head else []
    wanted = {group.name: max(group.wanted, len(group.pods)) for group in groups_of(world)}
    count = sum(who.workers.values())
    if count:
        names = list(who.workers)
        shown = len(wanted) > 1 and len(names) == 1
        total = wanted.get(names[0], count) if shown else sum(wanted.values())
        of = f" of group {names[0]}" if shown else ""
        parts.append(f"{count} of {total} worker{'' if total == 1 else 's'}{of}")
    return " and ".join(parts), count > 1 or len(parts) > 1


def _cause(pod: Obj, world: World) -> Waiting | None:
    """The most telling reason why that pod is not ready."""
    if _goes(pod):
        return _going(pod, world)
    if text(pod, "status", "phase") == "Failed":
        return ended_cause(pod, world)
    return (
        _node_cause(pod, world)
        or container_cause(pod, world)
        or unscheduled_cause(pod, world)
        or _starting(pod)
    )


def _going(pod: Obj, world: World) -> Waiting:
    node = _node_cause(pod, world)
    if node is not None:
        return node
    return Waiting(message="the old pod is being removed", kind="progress")


def _node_cause(pod: Obj, world: World) -> Waiting | None:
    """The node under the pod is gone or ill."""
    on = text(pod, "spec", "nodeName")
    if not on or world.nodes is None:
        return None
    node = next((node for node in world.nodes if name_of(node) == on), None)
    if node is None:
        return Waiting(
            message=f"node {on} is gone",
            remedy="a new pod follows once Kubernetes has given up the old one (about 5 min);"
            f" at once: `kubectl delete pod {name_of(pod)} --force`",
            kind="node",
        )
    ready = condition(node, "Ready")
    if ready.get("status") not in ("False", "Unknown"):
        return None
    why = one_line(text(ready, "message") or text(ready, "reason"))
    return Waiting(
        message=f"node {on} is not ready{f': {why}' if why else ''}",
        remedy="wait for the node, or have an admin look at it: `kubectl describe node"
        f" {on}`; pods move on after about 5 min",
        kind="node",
    )


def _missing_cause(world: World, *, is_head: bool) -> Waiting:
    """Why the operator has not made a pod: the API server refused it, or it is on its way."""
    for message in _creation_faults(world, is_head=is_head):
        if known := refusal(message):
            return known
        return Waiting(
            message=f"the pods could not be made: {one_line(message)}",
            remedy="the message is the API server's: change what it names in the template",
            kind="operator",
            is_stuck=True,
        )
    return Waiting(message="the operator has not made the pods yet", kind="progress")


def _creation_faults(world: World, *, is_head: bool) -> Iterable[str]:
    reason = "FailedToCreateHeadPod" if is_head else "FailedToCreateWorkerPod"
    if event := newest(world.own_events(), reason, reason.replace("To", "", 1)):
        yield event_text(event)
    failed = condition(world.raycluster, "ReplicaFailure")
    if failed.get("status") == "True" and text(failed, "message"):
        yield text(failed, "message")
    if told := text(world.raycluster, "status", "reason"):
        yield told


def _starting(pod: Obj) -> Waiting:
    if text(pod, "spec", "nodeName"):
        return Waiting(message="the pod starts", kind="progress")
    return Waiting(message="the pod has no node yet", kind="progress")


def _goes(pod: Obj) -> bool:
    return dig(pod, "metadata", "deletionTimestamp") is not None


def _counts(pod: Obj) -> bool:
    """The operator replaces a worker that has ended: it is told of until then."""
    return text(pod, "status", "phase") != "Succeeded"


def _type(pod: Obj) -> str:
    return labels(pod, "metadata", "labels").get(RAY_NODE_TYPE_LABEL, "")


def _group(pod: Obj) -> str:
    return labels(pod, "metadata", "labels").get(RAY_GROUP_LABEL, "")


def ready_counts(world: World) -> tuple[int, int]:
    """Worker pods that are ready, and that are wanted."""
    groups = groups_of(world)
    ready: Sequence[Obj] = [pod for group in groups for pod in group.pods if is_ready(pod)]
    return len(ready), sum(group.wanted for group in groups)
