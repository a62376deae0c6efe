"""Status that a RayCluster reports, and the state that follows from it. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.config.models.quantity import amount
from llmops_kernel.config.models.section import WITHOUT_RULES
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    fields,
    labels,
    objects,
    text,
    whole,
)
from llmops_kernel.providers.protocol import ClusterState, GroupInfo

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
    head_runs: bool = False
    """It is stopped, and only its workers are gone."""
    serves: bool = False
    """It wants more workers than those that run; without these it was ready before."""

    @property
    def has_ray(self) -> bool:
        """Return whether Ray can be asked what runs."""
        return self.asks_ray or self.head_runs or self.serves

    @property
    def is_at_rest(self) -> bool:
        """Return whether there is nothing to suspend."""
        return self.state in (ClusterState.STOPPED, ClusterState.STOPPING)


def annotation(raycluster: Obj, name: str) -> str:
    return labels(raycluster, "metadata", "annotations").get(name, "")


def seconds_of(raycluster: Obj, name: str) -> float | None:
    """Return an annotation that is a time in Unix seconds."""
    try:
        return float(annotation(raycluster, name))
    except ValueError:
        return None


def queue_of(raycluster: Obj) -> str | None:
    return labels(raycluster, "metadata", "labels").get(names.QUEUE_LABEL) or None


def is_elastic(raycluster: Obj) -> bool:
    """Return whether Kueue can resize it while it runs.

    The annotation only asks for that. Kueue's webhook answers with a scheduling gate in the pod
    templates, and only where its feature gate ElasticJobsViaWorkloadSlices is on.
    """
    gates = objects(raycluster, "spec", "headGroupSpec", "template", "spec", "schedulingGates")
    is_requested = annotation(raycluster, names.ELASTIC_ANNOTATION) == "true"
    return is_requested and any(gate.get("name") == names.ELASTIC_GATE for gate in gates)


def is_replaced_when_resized(raycluster: Obj) -> bool:
    """Return whether Kueue deletes all pods, the head's too, when the number of workers changes.

    Kueue has written `suspend` into each cluster that it manages; a label alone has no effect
    where Kueue is not installed.
    """
    is_admitted = dig(raycluster, "spec", "suspend") is False
    return bool(queue_of(raycluster)) and is_admitted and not is_elastic(raycluster)


def head_takes_work(raycluster: Obj) -> bool:
    """Return whether Ray may place a run's workers on the head."""
    head = dig(raycluster, "spec", "headGroupSpec", "rayStartParams")
    return not isinstance(head, dict) or str(head.get("num-cpus", "")) != "0"


def is_ours(raycluster: Obj) -> bool:
    manager = labels(raycluster, "metadata", "labels").get(names.MANAGED_BY_LABEL)
    return manager == names.MANAGED_BY


def is_autoscaled(raycluster: Obj) -> bool:
    return dig(raycluster, "spec", "enableInTreeAutoscaling") is True


def created_s(raycluster: Obj) -> float | None:
    try:
        return datetime.fromisoformat(text(raycluster, "metadata", "creationTimestamp")).timestamp()
    except ValueError:
        return None


def condition(raycluster: Obj, kind: str) -> Obj:
    for item in objects(raycluster, "status", "conditions"):
        if item.get("type") == kind:
            return item
    return {}


def holds(raycluster: Obj, kind: str) -> bool:
    return condition(raycluster, kind).get("status") == "True"


def number(value: Any) -> int:
    """Return the number; Kubernetes omits zeros."""
    return value if isinstance(value, int) else 0


def workers_ready(raycluster: Obj) -> int:
    return number(dig(raycluster, "status", "readyWorkerReplicas"))


def generation_behind(raycluster: Obj) -> bool:
    """Return whether the operator has written no status since the newest change of the spec."""
    generation = number(dig(raycluster, "metadata", "generation"))
    return number(dig(raycluster, "status", "observedGeneration")) < generation


def is_behind(raycluster: Obj) -> bool:
    """Return whether the operator has not seen the newest change of the spec either.

    The operator writes no status when only `observedGeneration` would differ (another image changes
    nothing in it, because running pods stay as they are), so its counts must differ too.
    """
    if not generation_behind(raycluster):
        return False
    requested = (total_expected_pods(raycluster), total_least_pods(raycluster))
    reported = tuple(
        number(dig(raycluster, "status", field))
        for field in ("desiredWorkerReplicas", "minWorkerReplicas")
    )
    return requested != reported


def group_infos(raycluster: Obj, pods: Sequence[Obj] | None) -> tuple[GroupInfo, ...]:
    """Return the worker groups; `ready` is counted from the pods if these are known."""
    ready = Counter(_group_of(pod) for pod in pods or () if pod_is_ready(pod))
    return tuple(
        GroupInfo(
            name=text(group, "groupName"),
            replicas=expected_replicas(group),
            hosts=hosts_per_replica(group),
            pods=expected_pods(group),
            ready=None if pods is None else ready[text(group, "groupName")],
            min_replicas=min_replicas(group),
            max_replicas=max_replicas(group),
        )
        for group in worker_groups(raycluster)
    )


def _group_of(pod: Obj) -> str:
    group = (pod["metadata"].get("labels") or {}).get(names.RAY_GROUP_LABEL)
    return str(group)


def pod_is_ready(pod: Obj) -> bool:
    # Each look reads up to a thousand pods: skip the checks that single objects get.
    for item in (pod.get("status") or {}).get("conditions") or ():
        if item.get("type") == "Ready":
            return bool(item.get("status") == "True")
    return False


def ready_since_s(raycluster: Obj) -> float | None:
    """Return when the current head became ready: before any job, idle time counts from there."""
    head_ready = condition(raycluster, HEAD_READY)
    try:
        return datetime.fromisoformat(text(head_ready, "lastTransitionTime")).timestamp()
    except ValueError:
        return created_s(raycluster)


def access_of(raycluster: Obj) -> Access:
    """Return how its dashboard is reached, from its template; an adopted cluster has no setting."""
    try:
        recorded = json.loads(annotation(raycluster, names.ACCESS) or "{}")
        return Access.model_validate(_upgraded(recorded))
    except ValueError:
        return Access()


def template_of(raycluster: Obj) -> KubeRayTemplate | None:
    """Return the template that it was made from, maybe by another release; None if adopted."""
    try:
        recorded = json.loads(annotation(raycluster, names.TEMPLATE))
        if isinstance(recorded, dict) and "access" in recorded:
            recorded["access"] = _upgraded(recorded["access"])
        return KubeRayTemplate.model_validate_json(json.dumps(recorded), context=WITHOUT_RULES)
    except ValueError:
        return None


def _upgraded(access: Any) -> Any:
    """Return an access of this release; earlier ones had a port-forward of their own."""
    is_forward = isinstance(access, dict) and access.get("way") == "port-forward"
    return {**access, "way": "auto"} if is_forward else access


def ray_version(raycluster: Obj) -> str | None:
    return text(raycluster, "spec", "rayVersion") or None


def image_of(raycluster: Obj) -> str | None:
    """Return the image of the head's first container, which is Ray's."""
    containers = objects(raycluster, "spec", "headGroupSpec", "template", "spec", "containers")
    return text(containers[0], "image") or None if containers else None


def remembered_replicas(raycluster: Obj) -> dict[str, list[int]]:
    """Return group -> [replicas, minReplicas] from before it was scaled to zero; else empty.

    With Ray's autoscaler maxReplicas follows, which was set to zero as well.
    """
    try:
        recorded = json.loads(annotation(raycluster, names.REPLICAS) or "{}")
    except ValueError:
        return {}
    if not isinstance(recorded, dict):
        return {}
    return {
        group: value if isinstance(value, list) else [value, 0] for group, value in recorded.items()
    }


def phase_of(raycluster: Obj) -> Phase:
    """Return the phase from the operator's conditions and counts.

    `status.state` is sticky and not used.
    """
    if text(raycluster, "metadata", "deletionTimestamp"):
        return Phase(ClusterState.STOPPING, _deletion_message(raycluster))
    if dig(raycluster, "spec", "suspend") is True:
        return _suspension_phase(raycluster)
    if remembered_replicas(raycluster) and not total_expected_pods(raycluster):
        return Phase(
            ClusterState.STOPPED,
            "It is scaled to zero workers; its head keeps running under Kueue",
            head_runs=True,
        )
    return _starting_phase(raycluster)


def _deletion_message(raycluster: Obj) -> str:
    finalizers = dig(raycluster, "metadata", "finalizers") or []
    other_finalizers = [name for name in finalizers if name not in ("foregroundDeletion", "orphan")]
    return (
        f"It is being deleted; {', '.join(other_finalizers)} holds it"
        if other_finalizers
        else "It is being deleted"
    )


def _suspension_phase(raycluster: Obj) -> Phase:
    if queue := queue_of(raycluster):
        # Kueue owns `suspend`: the cluster is not stopped, it waits in a queue.
        return Phase(ClusterState.STARTING, f"It waits in queue {queue} for Kueue to admit it")
    has_conditions = bool(objects(raycluster, "status", "conditions"))
    is_reported = text(raycluster, "status", "state") == "suspended"
    if holds(raycluster, SUSPENDED) or (is_reported and not has_conditions):
        return Phase(ClusterState.STOPPED, "Its RayCluster is suspended")
    if not fields(raycluster, "status"):
        return Phase(ClusterState.STOPPED, "Its RayCluster is suspended, and never ran")
    return Phase(ClusterState.STOPPING, "Its RayCluster is being suspended")


def _starting_phase(raycluster: Obj) -> Phase:
    if not fields(raycluster, "status"):
        return Phase(ClusterState.STARTING, "The operator has not processed it yet")
    if is_behind(raycluster):
        return Phase(ClusterState.STARTING, "The operator has not processed its latest change yet")
    if holds(raycluster, SUSPENDING):
        # It deletes all pods first, also when the cluster was resumed in the meantime.
        return Phase(ClusterState.STARTING, "Its RayCluster is still being suspended")
    was_up = holds(raycluster, PROVISIONED)
    if not _head_is_ready(raycluster):
        return Phase(ClusterState.STARTING, _head_message(raycluster, was_up=was_up))
    ready, needed = workers_ready(raycluster), _needed(raycluster)
    if ready < needed:
        return Phase(
            ClusterState.STARTING,
            f"{ready} of {needed} workers are ready",
            serves=was_up and ready > 0 and is_elastic(raycluster),
        )
    if holds(raycluster, FAILURE):
        message = text(condition(raycluster, FAILURE), "message")
        return Phase(ClusterState.STARTING, f"The operator could not create its pods: {message}")
    return Phase(ClusterState.READY, asks_ray=True)


def _needed(raycluster: Obj) -> int:
    """Return the workers to wait for.

    With the autoscaler, workers come only when there is work, and waiting for all of them would
    never end.
    """
    expected = total_expected_pods(raycluster)
    return min(expected, total_least_pods(raycluster)) if is_autoscaled(raycluster) else expected


def _head_is_ready(raycluster: Obj) -> bool:
    if objects(raycluster, "status", "conditions"):
        return holds(raycluster, HEAD_READY)
    # An operator from before the conditions (1.2) reports nothing else.
    return text(raycluster, "status", "state") == "ready"


def _head_message(raycluster: Obj, *, was_up: bool) -> str:
    head_ready = condition(raycluster, HEAD_READY)
    reason, message = text(head_ready, "reason"), text(head_ready, "message")
    details = ": ".join(part for part in (reason, message) if part and part != "HeadPodNotFound")
    reported = f" ({details})" if details else ""
    if was_up:
        return f"The head pod, which was ready before, is not ready any more{reported}"
    return f"The head pod is not ready yet{reported}"


# --- Expected numbers of worker pods ---


NO_LIMIT: Final = 2**31 - 1
"""The value that the CRD writes into a `maxReplicas` that was left out."""


def worker_groups(raycluster: Obj) -> list[Obj]:
    """Return the worker groups of the spec."""
    return objects(raycluster, "spec", "workerGroupSpecs")


def expected_replicas(group: Obj) -> int:
    """Return the replicas that the operator keeps: within the bounds, 0 of a suspended group.

    The operator's own rule (`GetWorkerGroupDesiredReplicas` of KubeRay 1.7). With Ray's
    autoscaler `replicas` is what the autoscaler has asked for last.
    """
    if is_suspended(group):
        return 0
    replicas, least = whole(group, "replicas") or 0, min_replicas(group)
    if replicas < least:
        return least
    return max(0, min(replicas, _limit(group)))


def expected_pods(group: Obj) -> int:
    """Return the pods of a group: one replica is as many pods as it has hosts."""
    return expected_replicas(group) * hosts_per_replica(group)


def least_pods(group: Obj) -> int:
    """Return the pods below which Ray's autoscaler does not go."""
    return 0 if is_suspended(group) else min_replicas(group) * hosts_per_replica(group)


def most_pods(group: Obj) -> int:
    """Return the pods above which Ray's autoscaler does not go."""
    return 0 if is_suspended(group) else _limit(group) * hosts_per_replica(group)


def total_expected_pods(raycluster: Obj) -> int:
    """Return the worker pods of the whole cluster, as if it were not suspended itself."""
    return sum(map(expected_pods, worker_groups(raycluster)))


def total_least_pods(raycluster: Obj) -> int:
    """Return the worker pods below which Ray's autoscaler does not go."""
    return sum(map(least_pods, worker_groups(raycluster)))


def expected_pods_by_group(raycluster: Obj) -> dict[str, int]:
    """Return the pods of each group; none of them where the whole cluster is suspended."""
    is_off = dig(raycluster, "spec", "suspend") is True
    return {
        str(group.get("groupName", "")): 0 if is_off else expected_pods(group)
        for group in worker_groups(raycluster)
    }


def is_suspended(group: Obj) -> bool:
    return group.get("suspend") is True


def hosts_per_replica(group: Obj) -> int:
    """Return the pods that make one replica."""
    return max(1, whole(group, "numOfHosts") or 1)


def min_replicas(group: Obj) -> int:
    return max(0, whole(group, "minReplicas") or 0)


def max_replicas(group: Obj) -> int | None:
    """Return the upper bound; None without one."""
    limit = _limit(group)
    return None if limit >= NO_LIMIT else limit


def _limit(group: Obj) -> int:
    limit = whole(group, "maxReplicas")
    return NO_LIMIT if limit is None else limit


# --- Reachable resources with Ray's autoscaler, by Ray's names ---


def most_resources(raycluster: Obj) -> dict[str, float] | None:
    """Return CPUs and GPUs with all groups at their upper bounds; None without the autoscaler."""
    if not is_autoscaled(raycluster):
        return None
    groups = [(group, most_pods(group)) for group in worker_groups(raycluster)]
    groups.append((fields(raycluster, "spec", "headGroupSpec"), 1))
    total = {"CPU": 0.0, "GPU": 0.0}
    for group, pods in groups:
        for name, of_pod in _of_pod(group).items():
            total[name] += of_pod * pods
    return total


def _of_pod(group: Obj) -> dict[str, float]:
    """Return what Ray schedules on one pod, by the operator's and the autoscaler's own rule."""
    params, group_resources = group.get("rayStartParams") or {}, group.get("resources") or {}
    containers = dig(group, "template", "spec", "containers")
    container_resources = (
        containers[0].get("resources") if isinstance(containers, list) and containers else None
    )
    limits = (container_resources or {}).get("limits") or {}
    requests = (container_resources or {}).get("requests") or {}
    cpus = (
        group_resources.get("CPU"),
        params.get("num-cpus"),
        limits.get("cpu"),
        requests.get("cpu"),
    )
    gpus = [value for name, value in limits.items() if str(name).endswith("gpu")]
    return {
        "CPU": _number(*cpus),
        "GPU": _number(group_resources.get("GPU"), params.get("num-gpus"), *gpus[:1]),
    }


def _number(*quantities: Any) -> float:
    """Return the first that is given, rounded up as Ray counts whole ones."""
    for quantity in quantities:
        try:
            return float(math.ceil(amount(quantity)))
        except ValueError:
            continue
    return 0.0
