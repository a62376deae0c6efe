"""What a RayCluster says of itself, and what that makes of it. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from llmops_kernel.clusters.kuberay import names
from llmops_kernel.clusters.kuberay.objects import Obj, dig, fields, labels, objects, text
from llmops_kernel.clusters.provider import ClusterState, GroupInfo
from llmops_kernel.config.kuberay import Access, KubeRayTemplate

SUSPENDED: Final = "RayClusterSuspended"
SUSPENDING: Final = "RayClusterSuspending"
PROVISIONED: Final = "RayClusterProvisioned"
HEAD_READY: Final = "HeadPodReady"
FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True)
class Phase:
    """A state and one sentence why."""

    state: ClusterState
    message: str = ""
    asks_ray: bool = False
    """The operator has nothing more to do: Ray's own answer decides."""


def annotation(raycluster: Obj, name: str) -> str:
    return labels(raycluster, "metadata", "annotations").get(name, "")


def seconds_of(raycluster: Obj, name: str) -> float | None:
    """An annotation that is a time in Unix seconds."""
    try:
        return float(annotation(raycluster, name))
    except ValueError:
        return None


def queue_of(raycluster: Obj) -> str | None:
    return labels(raycluster, "metadata", "labels").get(names.QUEUE_LABEL) or None


def is_ours(raycluster: Obj) -> bool:
    found = labels(raycluster, "metadata", "labels").get(names.MANAGED_BY_LABEL)
    return found == names.MANAGED_BY


def is_autoscaled(raycluster: Obj) -> bool:
    return dig(raycluster, "spec", "enableInTreeAutoscaling") is True


def created_s(raycluster: Obj) -> float | None:
    try:
        return datetime.fromisoformat(text(raycluster, "metadata", "creationTimestamp")).timestamp()
    except ValueError:
        return None


def condition(raycluster: Obj, kind: str) -> Obj:
    for one in objects(raycluster, "status", "conditions"):
        if one.get("type") == kind:
            return one
    return {}


def holds(raycluster: Obj, kind: str) -> bool:
    return condition(raycluster, kind).get("status") == "True"


def number(found: Any) -> int:
    """Kubernetes leaves zeros out."""
    return found if isinstance(found, int) else 0


def workers_ready(raycluster: Obj) -> int:
    return number(dig(raycluster, "status", "readyWorkerReplicas"))


def workers_wanted(raycluster: Obj) -> int:
    """As the spec has it: the operator's own figure is behind after a change."""
    return sum(replicas_of(group) * hosts_of(group) for group in groups_of(raycluster))


def workers_least(raycluster: Obj) -> int:
    """The autoscaler goes no lower."""
    return sum(
        number(group.get("minReplicas")) * hosts_of(group) for group in groups_of(raycluster)
    )


def replicas_of(group: Obj) -> int:
    """What the operator makes of it: within the bounds, and none of a suspended group."""
    if group.get("suspend") is True:
        return 0
    least, most = number(group.get("minReplicas")), group.get("maxReplicas")
    wanted = max(number(group.get("replicas")), least)
    return min(wanted, most) if isinstance(most, int) else wanted


def hosts_of(group: Obj) -> int:
    """Pods that make one replica."""
    return number(group.get("numOfHosts")) or 1


def generation_behind(raycluster: Obj) -> bool:
    """The operator has not written a status since the newest change of the spec."""
    generation = number(dig(raycluster, "metadata", "generation"))
    return number(dig(raycluster, "status", "observedGeneration")) < generation


def is_behind(raycluster: Obj) -> bool:
    """It has not seen that change either.

    The operator writes no status when only `observedGeneration` would differ (another image
    changes nothing in it, for running pods stay as they are), so its counts must differ too.
    """
    if not generation_behind(raycluster):
        return False
    asked = (workers_wanted(raycluster), workers_least(raycluster))
    seen = tuple(
        number(dig(raycluster, "status", field))
        for field in ("desiredWorkerReplicas", "minWorkerReplicas")
    )
    return asked != seen


def groups_of(raycluster: Obj) -> list[Obj]:
    return objects(raycluster, "spec", "workerGroupSpecs")


def group_infos(raycluster: Obj, pods: Sequence[Obj] | None) -> tuple[GroupInfo, ...]:
    """`ready` comes from the pods where these are known."""
    ready = Counter(_group_of(pod) for pod in pods or () if pod_is_ready(pod))
    return tuple(
        GroupInfo(
            name=text(group, "groupName"),
            replicas=replicas_of(group),
            ready=None if pods is None else ready[text(group, "groupName")],
            min_replicas=number(group.get("minReplicas")),
            max_replicas=group.get("maxReplicas")
            if group.get("maxReplicas") != 2**31 - 1
            else None,
        )
        for group in groups_of(raycluster)
    )


def _group_of(pod: Obj) -> str:
    found = (pod["metadata"].get("labels") or {}).get(names.RAY_GROUP_LABEL)
    return str(found)


def pod_is_ready(pod: Obj) -> bool:
    # Of a thousand pods at each look: without the care that single objects get.
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready":
            return bool(one.get("status") == "True")
    return False


def ready_since_s(raycluster: Obj) -> float | None:
    """When the head that is ready now became so: idle time counts from there before any job."""
    found = condition(raycluster, HEAD_READY)
    try:
        return datetime.fromisoformat(text(found, "lastTransitionTime")).timestamp()
    except ValueError:
        return created_s(raycluster)


def access_of(raycluster: Obj) -> Access:
    """How its dashboard is reached, as its template said; an adopted one has none."""
    try:
        return Access.model_validate_json(annotation(raycluster, names.ACCESS) or "{}")
    except ValueError:
        return Access()


def template_of(raycluster: Obj) -> KubeRayTemplate | None:
    """The template that it was made from; None for an adopted one."""
    try:
        return KubeRayTemplate.model_validate_json(annotation(raycluster, names.TEMPLATE))
    except ValueError:
        return None


def ray_version(raycluster: Obj) -> str | None:
    return text(raycluster, "spec", "rayVersion") or None


def image_of(raycluster: Obj) -> str | None:
    """Of the head's first container, which is Ray's."""
    containers = objects(raycluster, "spec", "headGroupSpec", "template", "spec", "containers")
    return text(containers[0], "image") or None if containers else None


def remembered_replicas(raycluster: Obj) -> dict[str, list[int]]:
    """Group -> [replicas, minReplicas] before it was scaled to zero; empty when it was not."""
    try:
        found = json.loads(annotation(raycluster, names.REPLICAS) or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        group: value if isinstance(value, list) else [value, 0] for group, value in found.items()
    }


def phase_of(raycluster: Obj) -> Phase:
    """From the operator's conditions and counts; `status.state` is sticky and says nothing."""
    if text(raycluster, "metadata", "deletionTimestamp"):
        return Phase(ClusterState.STOPPING, _leaving(raycluster))
    if dig(raycluster, "spec", "suspend") is True:
        return _suspended(raycluster)
    if remembered_replicas(raycluster) and not workers_wanted(raycluster):
        return Phase(
            ClusterState.STOPPED, "It is scaled to zero workers; its head stays up under Kueue"
        )
    return _coming(raycluster)


def _leaving(raycluster: Obj) -> str:
    finalizers = dig(raycluster, "metadata", "finalizers") or []
    own = [one for one in finalizers if one not in ("foregroundDeletion", "orphan")]
    return f"It is being deleted; {', '.join(own)} holds it" if own else "It is being deleted"


def _suspended(raycluster: Obj) -> Phase:
    if queue := queue_of(raycluster):
        # Kueue owns `suspend`: this is no rest, but a place in a queue.
        return Phase(ClusterState.STARTING, f"It waits in queue {queue} for Kueue to admit it")
    has_conditions = bool(objects(raycluster, "status", "conditions"))
    said = text(raycluster, "status", "state") == "suspended"
    if holds(raycluster, SUSPENDED) or (said and not has_conditions):
        return Phase(ClusterState.STOPPED, "It is suspended")
    if not fields(raycluster, "status"):
        return Phase(ClusterState.STOPPED, "It is suspended, and never ran")
    return Phase(ClusterState.STOPPING, "It is being suspended")


def _coming(raycluster: Obj) -> Phase:
    if not fields(raycluster, "status"):
        return Phase(ClusterState.STARTING, "The operator has not looked at it yet")
    if is_behind(raycluster):
        return Phase(ClusterState.STARTING, "The operator has not seen its newest change yet")
    was_up = holds(raycluster, PROVISIONED)
    if not _head_is_ready(raycluster):
        return Phase(ClusterState.STARTING, _head_message(raycluster, was_up=was_up))
    ready, wanted = workers_ready(raycluster), _needed(raycluster)
    if ready < wanted:
        return Phase(ClusterState.STARTING, f"{ready} of {wanted} workers are ready")
    if holds(raycluster, FAILURE):
        said = text(condition(raycluster, FAILURE), "message")
        return Phase(ClusterState.STARTING, f"The operator could not make its pods: {said}")
    return Phase(ClusterState.READY, asks_ray=True)


def _needed(raycluster: Obj) -> int:
    """With the autoscaler, workers come when there is work; waiting for them would never end."""
    wanted = workers_wanted(raycluster)
    return min(wanted, workers_least(raycluster)) if is_autoscaled(raycluster) else wanted


def _head_is_ready(raycluster: Obj) -> bool:
    if objects(raycluster, "status", "conditions"):
        return holds(raycluster, HEAD_READY)
    # An operator of before the conditions (1.2): all that it says.
    return text(raycluster, "status", "state") == "ready"


def _head_message(raycluster: Obj, *, was_up: bool) -> str:
    found = condition(raycluster, HEAD_READY)
    reason, said = text(found, "reason"), text(found, "message")
    why = ": ".join(part for part in (reason, said) if part and part != "HeadPodNotFound")
    told = f" ({why})" if why else ""
    if was_up:
        return f"The head pod, which was ready before, is not ready any more{told}"
    return f"The head pod is not ready yet{told}"
