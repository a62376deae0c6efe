"""What people read about a cluster that Kueue holds."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from llmops_kernel.providers.kuberay.waiting.reasons import waiting
from tests.providers.kuberay.observations import (
    head,
    node,
    observation,
    pod,
    raycluster,
    unscheduled,
)

GPU = "nvidia.com/gpu"
KUEUE = {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta1"}}


def workload(*conditions: dict[str, Any], **kw: Any) -> dict[str, Any]:
    container = {"resources": {"requests": {"cpu": "8", GPU: "8"}}}
    podset = {"name": "gpu", "count": 2, "template": {"spec": {"containers": [container]}}}
    owner = {"kind": "RayCluster", "name": "c", "uid": kw.pop("owner", "u1")}
    return {
        "metadata": {"name": "raycluster-c-1", "ownerReferences": [owner]},
        "spec": {"podSets": [podset], "active": kw.pop("active", True)},
        "status": {"conditions": list(conditions), **kw},
    }


def is_(kind: str, *, no: bool = False, message: str = "", reason: str = "") -> dict[str, Any]:
    status = "False" if no else "True"
    return {"type": kind, "status": status, "message": message, "reason": reason}


def local(*conditions: dict[str, Any], name: str = "team-a", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"clusterQueue": "all", **spec},
        "status": {"conditions": list(conditions), "pendingWorkloads": 3},
    }


def cluster_queue(*conditions: dict[str, Any], used: str = "16", **spec: Any) -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": GPU, "nominalQuota": "16"}]}
    use = {"name": "f", "resources": [{"name": GPU, "total": used}]}
    return {
        "metadata": {"name": "all"},
        "spec": {"resourceGroups": [{"flavors": [flavor]}], **spec},
        "status": {"conditions": list(conditions), "flavorsReservation": [use]},
    }


UID = "5c023c28-8533-4927-b266-56bca5e310c1"


def of_other() -> dict[str, Any]:
    """A workload of another cluster."""
    owner = {"kind": "RayCluster", "name": "other", "uid": "u2"}
    return {"metadata": {"name": "raycluster-other-1", "uid": UID, "ownerReferences": [owner]}}


def queued(*workloads: dict[str, Any], age_s: float = 60.0, **kw: Any) -> ClusterObservation:
    given = {
        "kueue": KUEUE,
        "local_queues": [local()],
        "cluster_queues": [cluster_queue()],
        "workloads": list(workloads),
    }
    cluster = raycluster(
        spec={"suspend": True},
        labels={"kueue.x-k8s.io/queue-name": "team-a"},
        age_s=age_s,
    )
    return observation(cluster, pods=[], events=[], **(given | kw))


CASES: dict[str, tuple[ClusterObservation, str, str, bool]] = {
    "no quota": (
        queued(
            workload(
                is_(
                    "QuotaReserved",
                    no=True,
                    message="couldn't assign flavors to pod set gpu: insufficient unused quota for"
                    " nvidia.com/gpu in flavor f, 16 more needed",
                )
            )
        ),
        "It waits for quota of queue team-a; queue team-a is at 16 of 16 nvidia.com/gpu; couldn't"
        " assign flavors to pod set gpu: insufficient unused quota for nvidia.com/gpu in flavor f,"
        " 16 more needed; 3 wait in the queue",
        "suspend a cluster of the queue",
        False,
    ),
    "more than the queue can ever give": (
        queued(
            workload(
                is_(
                    "QuotaReserved",
                    no=True,
                    message="insufficient quota for nvidia.com/gpu in flavor f, request > maximum"
                    " capacity (32 > 16)",
                )
            )
        ),
        "request > maximum capacity (32 > 16)",
        "this one can never provide so much",
        True,
    ),
    "preempted by a cluster that is seen": (
        queued(
            workload(
                is_("QuotaReserved", no=True),
                is_("Evicted", reason="Preempted"),
                is_(
                    "Preempted",
                    message=f"Preempted to accommodate a workload (UID: {UID}, JobUID: {UID[::-1]})"
                    " due to prioritization in the ClusterQueue",
                ),
            ),
            of_other(),
        ),
        "it was preempted: Preempted to accommodate a workload of cluster other due to"
        " prioritization in the ClusterQueue",
        "queue_priority",
        False,
    ),
    "a uid that nobody knows": (
        queued(workload(is_("QuotaReserved", no=True, message=f"waits for {UID}"))),
        "waits for 5c023c28…",
        "suspend a cluster",
        False,
    ),
    "preempted": (
        queued(
            workload(
                is_("QuotaReserved", no=True),
                is_("Evicted", reason="Preempted"),
                is_("Preempted", message="Preempted to accommodate a workload due to priority"),
            )
        ),
        "it was preempted: Preempted to accommodate a workload due to priority",
        "queue_priority",
        False,
    ),
    "reserved, a check is missing": (
        queued(
            workload(
                is_("QuotaReserved"),
                admissionChecks=[{"name": "new-nodes", "state": "Pending", "message": "asked"}],
            )
        ),
        "Queue team-a has reserved its quota; admission check new-nodes is Pending: asked",
        "wait",
        False,
    ),
    "deactivated": (
        queued(workload(active=False)),
        "Its workload was removed from queue team-a (deactivated)",
        "llmops resume",
        True,
    ),
    "queue missing": (
        queued(local_queues=[local(name="team-b")]),
        "There is no queue team-a in the namespace (existing: team-b)",
        "to one of team-b",
        True,
    ),
    "queue stopped": (
        queued(workload(), local_queues=[local(stopPolicy="Hold")]),
        "Queue team-a is stopped (stopPolicy Hold)",
        "an admin",
        True,
    ),
    "cluster queue inactive": (
        queued(
            workload(),
            cluster_queues=[
                cluster_queue(is_("Active", no=True, message="references missing flavor f"))
            ],
        ),
        "ClusterQueue all is not active: references missing flavor f",
        "an admin",
        True,
    ),
    "cluster queue missing": (
        queued(workload(), cluster_queues=[]),
        "Queue team-a refers to ClusterQueue all, which does not exist",
        "an admin",
        True,
    ),
    "no workload": (
        queued(),
        "Kueue has created no workload for it in 60 s",
        "ray.io/raycluster",
        True,
    ),
    "workload of an earlier cluster": (
        queued(workload(is_("Admitted"), owner="u0")),
        "Kueue has created no workload for it",
        "ray.io/raycluster",
        True,
    ),
    "no workload yet": (queued(age_s=3.0), "It waits for queue team-a", "", False),
    "Kueue absent": (
        queued(kueue={}, local_queues=None),
        "It requests queue team-a, but Kueue is not installed",
        "`queue`",
        True,
    ),
    "cluster queue hidden": (
        queued(
            workload(is_("QuotaReserved", no=True, message="no room")),
            cluster_queues=None,
            denied=("clusterqueues",),
        ),
        "It waits for quota of queue team-a; no room; 3 wait in the queue",
        "wait",
        False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_queue_is_reported_with_its_numbers(
    case: tuple[ClusterObservation, str, str, bool],
) -> None:
    given, message, remedy, is_stuck = case
    first = waiting(given)[0]
    assert message in first.message
    assert remedy in first.remedy
    assert first.is_stuck == is_stuck


def test_an_admitted_cluster_without_capacity_shows_node_and_queue() -> None:
    cluster = raycluster(replicas=4, labels={"kueue.x-k8s.io/queue-name": "team-a"})
    pods = [head(), pod("a", ready=True), pod("b", ready=True), unscheduled("c"), unscheduled("d")]
    given = observation(
        cluster,
        pods=pods,
        nodes=[node()],
        node_pods=[pod("x", node="n0")],
        kueue=KUEUE,
        workloads=[workload(is_("Admitted"))],
        local_queues=[local()],
        cluster_queues=[cluster_queue()],
    )
    assert waiting(given)[0].message == (
        "2 of 4 workers wait: no node has 8 free nvidia.com/gpu (the best, n0, has 0 of 8);"
        " queue team-a is at 16 of 16"
    )


def test_of_a_cluster_of_multikueue_no_local_pod_is_expected() -> None:
    cluster = raycluster(
        spec={"managedBy": "kueue.x-k8s.io/multikueue"},
        labels={"kueue.x-k8s.io/queue-name": "team-a"},
        status={},
    )
    check = {"name": "mk", "state": "Ready", "message": "reserved on worker1"}
    given = observation(
        cluster,
        pods=[],
        events=[],
        kueue=KUEUE,
        local_queues=[local()],
        workloads=[workload(is_("QuotaReserved"), is_("Admitted"), admissionChecks=[check])],
    )
    assert waiting(given) == ()


def test_new_workers_of_an_elastic_cluster_wait_for_the_quota_of_their_slice() -> None:
    gate = [{"name": "kueue.x-k8s.io/elastic-job"}]
    cluster = raycluster(
        replicas=2,
        labels={"kueue.x-k8s.io/queue-name": "team-a"},
        annotations={"kueue.x-k8s.io/elastic-job": "true"},
        spec={"suspend": False, "headGroupSpec": {"template": {"spec": {"schedulingGates": gate}}}},
    )
    old = workload(is_("QuotaReserved"), is_("Admitted"))
    new = workload(is_("QuotaReserved", no=True, message="insufficient unused quota"))
    new["metadata"]["name"] = "raycluster-c-2"
    seen = {
        "kueue": KUEUE,
        "local_queues": [local()],
        "cluster_queues": [cluster_queue()],
        "pods": [head(), pod("a", ready=True), pod("b", spec={"schedulingGates": gate})],
    }
    first = waiting(observation(cluster, workloads=[old, new], **seen))[0]
    assert first.message.startswith(
        "Workload raycluster-c-2 of its new size waits for quota of queue team-a; queue team-a is"
        " at 16 of 16 nvidia.com/gpu; insufficient unused quota"
    )
    assert (first.kind, first.is_stuck) == ("quota", False)
    # The slice that was replaced has finished, and the new one is admitted.
    old["status"]["conditions"].append(is_("Finished"))
    new["status"]["conditions"] = [is_("QuotaReserved"), is_("Admitted")]
    assert "quota" not in str(waiting(observation(cluster, workloads=[old, new], **seen)))
