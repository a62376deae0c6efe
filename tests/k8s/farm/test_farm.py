"""Scheduler, kubelets, quotas and Kueue beside the operator: what waits says why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.k8s.support.manifests import RAYCLUSTERS, Obj, group, raycluster
from tests.waiting import until

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(standin, requeue_s=0.2, with_kueue=True, default_node=False) as running:
        running.add_node("cpu-1", cpu="8", memory="64Gi", labels={"pool": "cpu"})
        running.add_node(
            "gpu-1", cpu="16", memory="256Gi", gpu=8, taints=("nvidia.com/gpu=present:NoSchedule",)
        )
        yield running


class KubeScope:
    """One namespace of the farm."""

    def __init__(self, farm: Farm, namespace: str):
        self.farm, self.namespace = farm, namespace

    def create(self, cluster: Obj) -> None:
        path = RAYCLUSTERS.format(self.namespace)
        self.farm.http.post(path, json=cluster).raise_for_status()

    def get(self, path: str, **params: str) -> Obj:
        return dict(self.farm.http.get(path, params=params).raise_for_status().json())

    def cluster(self, name: str) -> Obj:
        return self.get(f"{RAYCLUSTERS.format(self.namespace)}/{name}")

    def status(self, name: str) -> Obj:
        return dict(self.cluster(name).get("status") or {})

    def patch(self, name: str, patch: Obj) -> None:
        path = f"{RAYCLUSTERS.format(self.namespace)}/{name}"
        self.farm.http.patch(path, json=patch, headers=MERGE).raise_for_status()

    def pods(self, kind: str = "") -> list[Obj]:
        return [p for p in self.farm.pods(self.namespace) if kind in p["metadata"]["name"]]

    def events(self, **wanted: str) -> list[Obj]:
        found = self.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [e for e in found if all(e.get(key) == value for key, value in wanted.items())]

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
        log = self.farm.log
        return until(condition, timeout_s=timeout_s, report=lambda: log.read_text()[-2000:])


@pytest.fixture
def scope(farm: Farm, namespace: str) -> KubeScope:
    return KubeScope(farm, namespace)


def test_a_cluster_comes_up_scales_sleeps_and_wakes(scope: KubeScope):
    scope.create(raycluster("small", group(replicas=2)))
    scope.until(lambda: scope.status("small").get("state") == "ready")
    assert scope.status("small")["readyWorkerReplicas"] == 2
    spec = scope.cluster("small")["spec"]
    spec["workerGroupSpecs"][0]["replicas"] = 3
    scope.patch("small", {"spec": {"workerGroupSpecs": spec["workerGroupSpecs"]}})
    scope.until(lambda: scope.status("small").get("readyWorkerReplicas") == 3)

    chosen = scope.pods("-worker-")[1]["metadata"]["name"]
    spec["workerGroupSpecs"][0] |= {"replicas": 2, "scaleStrategy": {"workersToDelete": [chosen]}}
    scope.patch("small", {"spec": {"workerGroupSpecs": spec["workerGroupSpecs"]}})
    scope.until(lambda: scope.status("small").get("readyWorkerReplicas") == 2)
    assert chosen not in [pod["metadata"]["name"] for pod in scope.pods()]

    scope.patch("small", {"spec": {"suspend": True}})
    scope.until(lambda: scope.status("small")["state"] == "suspended")
    assert scope.pods() == []
    scope.patch("small", {"spec": {"suspend": False}})
    scope.until(lambda: scope.status("small")["state"] == "ready")


def test_a_killed_head_is_recreated(scope: KubeScope):
    scope.create(raycluster("small"))
    scope.until(lambda: scope.status("small").get("state") == "ready")
    (head,) = scope.pods("-head-")
    scope.farm.kill_pod(head["metadata"]["name"], namespace=scope.namespace)
    scope.until(lambda: scope.events(reason="DeletedHeadPod"))

    def is_new() -> bool:
        names = [pod["metadata"]["name"] for pod in scope.pods("-head-")]
        return bool(names) and head["metadata"]["name"] not in names

    scope.until(is_new)
    assert "Pod status: Failed" in scope.events(reason="DeletedHeadPod")[0]["message"]


def test_an_api_server_that_is_away_and_busy(scope: KubeScope, standin: StandIn):
    scope.create(raycluster("patient", group(replicas=3)))
    standin.fault("away", seconds=2)
    time.sleep(2.5)
    scope.until(lambda: scope.status("patient").get("state") == "ready")
    standin.fault("drop-watch", path="")
    standin.fault("503", method="PUT", count=3)
    scope.patch("patient", {"spec": {"suspend": True}})
    scope.until(lambda: scope.status("patient").get("state") == "suspended")


def test_a_pod_that_fits_nowhere_says_so_in_kubernetes_words(scope: KubeScope):
    scope.create(raycluster("big", group(gpu=16)))
    (pod,) = scope.until(
        lambda: [p for p in scope.pods("-worker-") if p["status"].get("conditions")]
    )
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert condition["message"] == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint"
        " {nvidia.com/gpu: present}. preemption: 0/2 nodes are available: 1 No preemption victims"
        " found for incoming pod, 1 Preemption is not helpful for scheduling."
    )
    (event,) = scope.until(lambda: scope.events(reason="FailedScheduling"))
    assert event["message"] == condition["message"]
    assert event["reportingComponent"] == "default-scheduler"


def test_a_pod_waits_until_there_is_a_node_for_it(scope: KubeScope):
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    pod = {"nodeSelector": {"pool": "new"}, "tolerations": [toleration]}
    scope.create(raycluster("picky", group(gpu=1, pod=pod)))
    text = "2 node(s) didn't match Pod's node affinity/selector"
    scope.until(lambda: any(text in e["message"] for e in scope.events(reason="FailedScheduling")))
    scope.farm.add_node("late", gpu=2, labels={"pool": "new"})
    scope.until(lambda: scope.status("picky").get("state") == "ready")
    assert scope.pods("-worker-")[0]["spec"]["nodeName"] == "late"


def test_an_image_that_cannot_be_pulled(scope: KubeScope):
    scope.create(raycluster("typo", image="registry.example/nopull:1"))

    def waiting() -> str:
        conditions = scope.status("typo").get("conditions") or []
        found = [c for c in conditions if c["type"] == "HeadPodReady"]
        return str(found[0]["reason"]) if found else ""

    scope.until(lambda: waiting() == "ImagePullBackOff")
    (head,) = scope.pods()
    state = head["status"]["containerStatuses"][0]["state"]["waiting"]
    assert 'Back-off pulling image "registry.example/nopull:1"' in state["message"]
    assert "not found" in state["message"]
    texts = [event["message"] for event in scope.events(reason="Failed")]
    assert any(text.startswith("Failed to pull image") for text in texts)
    assert "state" not in scope.status("typo")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_volume_that_is_not_there(scope: KubeScope, is_there: bool):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}}
    claims = f"/api/v1/namespaces/{scope.namespace}/persistentvolumeclaims"
    if is_there:
        size = {"requests": {"storage": "1Ti"}}
        body = {"spec": {"accessModes": ["ReadWriteMany"], "resources": size}}
        meta = {"metadata": {"name": "datasets"}}
        scope.farm.http.post(claims, json=meta | body).raise_for_status()
    scope.create(raycluster("data", head={"volumes": [volume]}))
    text = (
        "pod has unbound immediate PersistentVolumeClaims"
        if is_there
        else 'persistentvolumeclaim "datasets" not found'
    )
    event = scope.until(lambda: scope.events(reason="FailedScheduling"))[0]
    assert event["message"].startswith(f"0/{len(scope.farm.nodes)} nodes are available: {text}.")
    if is_there:
        path = f"{claims}/datasets/status"
        bound = {"status": {"phase": "Bound"}}
        scope.farm.http.patch(path, json=bound, headers=MERGE).raise_for_status()
        scope.until(lambda: scope.status("data").get("state") == "ready")


def test_a_quota_that_is_used_up(scope: KubeScope, standin: StandIn):
    quotas = f"/api/v1/namespaces/{scope.namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "8"}
    body = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    scope.farm.http.post(quotas, json=body).raise_for_status()
    scope.create(raycluster("greedy", group(replicas=2, gpu=8)))

    def failure() -> str:
        conditions = scope.status("greedy").get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "ReplicaFailure"), "")

    message = scope.until(failure)
    assert "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8" in message
    assert scope.events(reason="FailedToCreateWorkerPod")
    assert len(scope.pods("-worker-")) == 1


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"rayVersion": "2.40.0"}, "InvalidRayClusterSpec", "minimum Ray version is 2.52.0"),
        (
            {"workerGroupSpecs": [group(minReplicas=3, maxReplicas=1)]},
            "InvalidRayClusterSpec",
            "minReplicas 3 greater than maxReplicas 1",
        ),
        (
            {"workerGroupSpecs": [group(idleTimeoutSeconds=60)]},
            "InvalidRayClusterSpec",
            "idleTimeoutSeconds is set, but autoscaler v2 is not enabled",
        ),
        (
            {"workerGroupSpecs": [group(resources={"CPU": "1"}, rayStartParams={"num-cpus": "1"})]},
            "InvalidRayClusterSpec",
            "resource fields should not be set in both",
        ),
        (
            {"workerGroupSpecs": [group(rayStartParams={"labels": "a=b"})]},
            "InvalidRayClusterSpec",
            "rayStartParams['labels'] is not supported for gpu group",
        ),
        ({"networkPolicy": {}}, "InvalidRayClusterSpec", "RayClusterNetworkPolicy feature gate"),
    ],
)
def test_the_operators_own_rules(scope: KubeScope, change: Obj, reason: str, text: str):
    scope.create(raycluster("wrong", **change))
    (event,) = scope.until(lambda: scope.events(reason=reason))
    assert text in event["message"]
    assert event["type"] == "Warning"
    time.sleep(0.5)
    assert scope.status("wrong") == {}
    assert scope.pods() == []


def test_the_autoscaler_is_a_container_with_an_account_of_its_own(
    standin: StandIn, scope: KubeScope
):
    options = {"version": "v2", "env": [{"name": "A", "value": "b"}]}
    scope.create(raycluster("auto", enableInTreeAutoscaling=True, autoscalerOptions=options))
    (head,) = scope.until(lambda: scope.pods("-head-"))
    _, side_car = head["spec"]["containers"]
    assert (side_car["name"], side_car["env"][-1]) == ("autoscaler", {"name": "A", "value": "b"})
    accounts = f"/api/v1/namespaces/{scope.namespace}/serviceaccounts"
    account = head["spec"]["serviceAccountName"]
    made = scope.farm.http.post(f"{accounts}/{account}/token", json={}).raise_for_status()
    with standin.client(made.json()["status"]["token"]) as http:
        path = f"{RAYCLUSTERS.format(scope.namespace)}/auto"
        assert http.get(path).status_code == 200
        assert http.delete(path).status_code == 403
        assert http.get(f"/api/v1/namespaces/{scope.namespace}/secrets").status_code == 403


def test_a_name_that_is_too_long(scope: KubeScope):
    name = "a" * 54
    scope.create(raycluster(name))
    (event,) = scope.until(lambda: scope.events(reason="InvalidRayClusterMetadata"))
    assert event["message"].endswith("RayCluster name should be no more than 53 characters")
    assert scope.status(name) == {}


def test_another_controllers_cluster_is_left_alone(scope: KubeScope):
    scope.create(raycluster("theirs", managedBy="kueue.x-k8s.io/multikueue"))
    time.sleep(0.5)
    assert scope.status("theirs") == {}
    assert scope.events() == []


def test_kueue_admits_while_the_quota_lasts(scope: KubeScope, standin: StandIn):
    queue = f"gpus-{scope.namespace}"
    standin.put(kueue.cluster_queue(queue, cpu="8", memory="64Gi", gpu="8"))
    labels = {kueue.QUEUE_LABEL: "team-a"}
    pod = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
    scope.create(raycluster("first", group(gpu=6, pod=pod), labels=labels))

    def workload(name: str) -> Obj:
        path = f"{kueue.BASE}/namespaces/{scope.namespace}/workloads"
        owned = [
            w for w in scope.get(path)["items"]
            if w["metadata"]["ownerReferences"][0]["name"] == name
        ]  # fmt: skip
        return dict(owned[0]) if owned else {}

    def said(name: str) -> str:
        conditions = (workload(name).get("status") or {}).get("conditions") or []
        return next((c["message"] for c in conditions if c["type"] == "QuotaReserved"), "")

    assert scope.until(lambda: said("first")) == "LocalQueue team-a doesn't exist"
    assert scope.cluster("first")["spec"]["suspend"] is True
    local = kueue.local_queue("team-a", namespace=scope.namespace, cluster_queue=queue)
    standin.put(local)
    scope.until(lambda: scope.status("first").get("state") == "ready")
    scope.create(raycluster("second", group(gpu=4, pod=pod), labels=labels))
    assert scope.until(lambda: said("second")) == (
        "couldn't assign flavors to pod set gpu: insufficient unused quota for nvidia.com/gpu in"
        " flavor default-flavor, 2 more needed"
    )
    assert scope.pods("second-") == []
    scope.create(raycluster("third", group(gpu=9, pod=pod), labels=labels))
    assert "(9) > maximum capacity (8)" in scope.until(lambda: said("third"))

    used = scope.get(f"{kueue.BASE}/clusterqueues/{queue}")["status"]
    gpus = used["flavorsUsage"][0]["resources"][-1]
    assert (gpus["name"], gpus["total"]) == ("nvidia.com/gpu", "6")
    scope.farm.http.delete(f"{RAYCLUSTERS.format(scope.namespace)}/first").raise_for_status()
    scope.until(lambda: scope.status("second").get("state") == "ready")


def test_a_farm_that_stops_and_starts_takes_up_what_is_there(scope: KubeScope):
    scope.create(raycluster("small", group()))
    scope.until(lambda: scope.status("small").get("state") == "ready")
    names = sorted(pod["metadata"]["name"] for pod in scope.pods())
    scope.farm.stop_operator()
    scope.create(raycluster("later"))
    time.sleep(0.5)
    assert scope.status("later") == {}
    scope.farm.start_operator()
    scope.until(lambda: scope.status("later").get("state") == "ready")
    assert sorted(p["metadata"]["name"] for p in scope.pods("small-")) == names
