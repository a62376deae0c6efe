"""Another size of a queued cluster: Kueue keeps the pods of an elastic job, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.k8s.farm.test_farm import KubeScope
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.k8s.support.manifests import Obj, group, raycluster

GATE = "kueue.x-k8s.io/elastic-job"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


@pytest.fixture
def scope(request: pytest.FixtureRequest, standin: StandIn, namespace: str) -> Iterator[KubeScope]:
    """A namespace with a queue of 4 CPUs, which leads to the nodes of one pool."""
    with Farm(standin, requeue_s=0.2, with_kueue=True, elastic_jobs=request.param) as farm:
        farm.add_node("pool-1", labels={"pool": "cpu"})
        standin.put({
            "apiVersion": f"{kueue.GROUP}/{kueue.VERSION}", "kind": "ResourceFlavor",
            "metadata": {"name": "default-flavor"}, "spec": {"nodeLabels": {"pool": "cpu"}},
        })  # fmt: skip
        queue = f"cpus-{namespace}"
        standin.put(kueue.cluster_queue(queue, cpu="4", memory="64Gi"))
        standin.put(kueue.local_queue("team-a", namespace=namespace, cluster_queue=queue))
        scope = KubeScope(farm, namespace)
        body = raycluster("queued", group("cpu"), labels={kueue.QUEUE_LABEL: "team-a"})
        body["metadata"]["annotations"] = {GATE: "true"}
        scope.create(body)
        scope.until(lambda: scope.status("queued").get("state") == "ready")
        yield scope


def workloads(scope: KubeScope, *, is_finished: bool = False) -> list[Obj]:
    found = scope.get(f"{kueue.BASE}/namespaces/{scope.namespace}/workloads")["items"]
    return [w for w in found if (_condition(w, "Finished").get("status") == "True") == is_finished]


def _condition(workload: Obj, kind: str) -> Obj:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return next((dict(c) for c in conditions if c["type"] == kind), {})


def scale(scope: KubeScope, replicas: int) -> None:
    groups = scope.cluster("queued")["spec"]["workerGroupSpecs"]
    groups[0]["replicas"] = replicas
    scope.patch("queued", {"spec": {"workerGroupSpecs": groups}})


def workers(scope: KubeScope, *, gated: bool = False) -> list[str]:
    found = [p for p in scope.pods("-worker-") if not p["metadata"].get("deletionTimestamp")]
    return [p["metadata"]["uid"] for p in found if ("schedulingGates" in p["spec"]) == gated]


def head(scope: KubeScope) -> str:
    (pod,) = scope.pods("-head-")
    return str(pod["metadata"]["uid"])


def used_cpus(scope: KubeScope) -> str:
    status = scope.get(f"{kueue.BASE}/clusterqueues/cpus-{scope.namespace}")["status"]
    totals = {each["name"]: each["total"] for each in status["flavorsUsage"][0]["resources"]}
    return str(totals["cpu"])


@pytest.mark.parametrize("scope", [True], indirect=True)
def test_an_elastic_job_is_resized_while_its_pods_run(scope: KubeScope) -> None:
    uid, (first,) = head(scope), workloads(scope)
    scale(scope, 3)
    scope.until(lambda: scope.status("queued").get("readyWorkerReplicas") == 3)
    (second,) = scope.until(lambda: workloads(scope))
    assert [w["metadata"]["name"] for w in workloads(scope, is_finished=True)] == [
        first["metadata"]["name"]
    ]
    replaced = f"{scope.namespace}/{first['metadata']['name']}"
    assert second["metadata"]["annotations"][REPLACES] == replaced

    # A size beyond the quota waits behind the gate of its pod; all others run on.
    running = workers(scope)
    scale(scope, 4)
    scope.until(lambda: len(workers(scope, gated=True)) == 1)

    def waiting() -> list[str]:
        reserved = [_condition(workload, "QuotaReserved") for workload in workloads(scope)]
        return [each["message"] for each in reserved if each.get("status") == "False"]

    (why,) = scope.until(waiting)
    assert "1 more needed" in why
    assert sorted(workers(scope)) == sorted(running)
    assert used_cpus(scope) == "4"

    scale(scope, 1)
    scope.until(lambda: len(scope.pods("-worker-")) == 1 and used_cpus(scope) == "2")
    scale(scope, 0)
    scope.until(lambda: not scope.pods("-worker-") and used_cpus(scope) == "1")
    (last,) = workloads(scope)
    assert {each["name"]: each["count"] for each in last["spec"]["podSets"]} == {
        "head": 1, "cpu": 0,
    }  # fmt: skip
    scale(scope, 1)
    scope.until(lambda: scope.status("queued").get("readyWorkerReplicas") == 1)
    assert head(scope) == uid
    assert scope.cluster("queued")["spec"]["suspend"] is False


@pytest.mark.parametrize("scope", [True], indirect=True)
def test_kueue_owns_the_worker_groups_that_it_wrote_into(scope: KubeScope) -> None:
    cluster = scope.cluster("queued")
    template = cluster["spec"]["workerGroupSpecs"][0]["template"]
    assert template["metadata"]["labels"] == {
        "kueue.x-k8s.io/podset": "cpu",
        "kueue.x-k8s.io/queue-name": "team-a",
        "kueue.x-k8s.io/cluster-queue-name": f"cpus-{scope.namespace}",
    }
    assert template["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert template["spec"]["schedulingGates"] == [{"name": GATE}]
    assert {pod["spec"]["nodeName"] for pod in scope.pods()} == {"pool-1"}
    fields = [
        m["fieldsV1"] for m in cluster["metadata"]["managedFields"] if m["manager"] == "kueue"
    ]
    assert any("f:workerGroupSpecs" in each.get("f:spec", {}) for each in fields)


@pytest.mark.parametrize("scope", [False], indirect=True)
def test_without_the_feature_gate_another_size_replaces_the_head(scope: KubeScope) -> None:
    uid, (first,) = head(scope), workloads(scope)
    assert (
        "schedulingGates"
        not in scope.cluster("queued")["spec"]["headGroupSpec"]["template"]["spec"]
    )
    scale(scope, 3)
    # KubeRay may have made the other workers ready before Kueue suspends the cluster.
    scope.until(lambda: any(pod["metadata"]["uid"] != uid for pod in scope.pods("-head-")))
    scope.until(lambda: scope.status("queued").get("readyWorkerReplicas") == 3)
    scope.until(lambda: scope.status("queued").get("state") == "ready")
    assert head(scope) != uid
    (second,) = workloads(scope)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert any("due to suspension" in e["message"] for e in scope.events(reason="DeletedPod"))
