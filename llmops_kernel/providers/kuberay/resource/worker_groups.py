"""How many pods KubeRay's operator creates for the worker groups of a RayCluster."""

from __future__ import annotations

from typing import Final

from llmops_kernel.providers.kuberay.resource.objects import Obj, dig, objects, whole

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
