"""Resizing a cluster that Kueue admitted: the head stays where Kueue can, else users know it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llmops_kernel.errors import ClusterStateError
from llmops_kernel.providers.capabilities import EditKind
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo, ClusterSize, ClusterState
from llmops_kernel.services.clusters import Cluster
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until

GATE = "kueue.x-k8s.io/elastic-job"


def admitted(cloud: Cloud, *, elastic: bool, **fields: Any) -> None:
    """Create a queued cluster, and do what Kueue writes when it admits it."""
    cloud.provider.up(cloud.template(queue="team-a", **fields), wait=False)
    spec: dict[str, Any] = {"suspend": False}
    if elastic:
        live = cloud.live()["spec"]
        head, groups = live["headGroupSpec"], live["workerGroupSpecs"]
        head["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
        for group in groups:
            group["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
        spec |= {"headGroupSpec": head, "workerGroupSpecs": groups}
    cloud.patch("one", {"spec": spec}, manager="kueue")
    cached = cloud.live()["metadata"]["resourceVersion"]
    until(lambda: _seen(cloud) == cached)


def _seen(cloud: Cloud) -> str:
    return str(cloud.provider._find("one").raycluster["metadata"]["resourceVersion"])


@pytest.mark.parametrize("action", [ClusterAction.SCALE, ClusterAction.SUSPEND])
def test_the_preview_says_that_kueue_replaces_the_head(cloud: Cloud, action: ClusterAction) -> None:
    admitted(cloud, elastic=False)
    preview = cloud.provider.preview("one", action)
    assert preview.needs_confirmation
    assert "also the head" in preview.summary
    assert any("the head pod" in line for line in preview.stops)


def test_the_size_and_the_suspension_are_one_change(cloud: Cloud) -> None:
    """Else KubeRay creates pods while Kueue deletes them, and waits 300 s for the lost ones."""
    admitted(cloud, elastic=False)
    generation = cloud.live()["metadata"]["generation"]
    cloud.provider.scale("one", ClusterSize(workers={"w": 3}), wait=False)
    live = cloud.live()
    assert live["spec"]["workerGroupSpecs"][0]["replicas"] == 3
    assert live["spec"]["suspend"] is True
    assert live["metadata"]["generation"] == generation + 1


def test_an_elastic_cluster_is_resized_while_it_runs(cloud: Cloud) -> None:
    admitted(cloud, elastic=True)
    preview = cloud.provider.preview("one", ClusterAction.SCALE)
    assert not preview.needs_confirmation
    assert "other pods keep running" in preview.summary
    stops = cloud.provider.preview("one", ClusterAction.SUSPEND).stops
    assert not any("head" in line for line in stops)
    cloud.provider.scale("one", ClusterSize(workers={"w": 3}), wait=False)
    spec = cloud.live()["spec"]
    assert (spec["suspend"], spec["workerGroupSpecs"][0]["replicas"]) == (False, 3)
    assert spec["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"] == [{"name": GATE}]
    cloud.provider.suspend("one")
    assert cloud.live()["spec"]["suspend"] is False


def test_suspended_the_autoscaler_adds_no_workers(cloud: Cloud) -> None:
    """Kueue owns `suspend`, and KubeRay leaves the pods to the autoscaler, within its bounds."""
    admitted(cloud, elastic=True, autoscaling=True)
    (before,) = cloud.live()["spec"]["workerGroupSpecs"]
    cloud.provider.suspend("one")
    (group,) = cloud.live()["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 0)
    cloud.provider.resume("one", wait=False)
    assert cloud.live()["spec"]["workerGroupSpecs"] == [before]


def test_an_unchanged_template_has_no_effect_on_an_admitted_cluster(cloud: Cloud) -> None:
    """Kueue owns the list of worker groups then, and has written into it."""
    admitted(cloud, elastic=True)
    template = cloud.template(queue="team-a")
    assert cloud.provider.effect(template).kind == "nothing"
    cloud.provider.apply(template)
    group = cloud.live()["spec"]["workerGroupSpecs"][0]
    assert group["template"]["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_changed_template_is_applied_beside_kueue(cloud: Cloud) -> None:
    admitted(cloud, elastic=True)
    cloud.provider.apply(cloud.template(queue="team-a", env={"NCCL_DEBUG": "INFO"}))
    group = cloud.live()["spec"]["workerGroupSpecs"][0]
    assert "NCCL_DEBUG" in str(group)
    assert group["template"]["spec"]["schedulingGates"] == [{"name": GATE}]


def test_what_somebody_else_changed_is_not_taken_over(cloud: Cloud) -> None:
    admitted(cloud, elastic=True)
    groups = cloud.live()["spec"]["workerGroupSpecs"]
    groups[0]["maxReplicas"] = 3
    cloud.patch("one", {"spec": {"workerGroupSpecs": groups}}, manager="kubectl-edit")
    until(lambda: _seen(cloud) == cloud.live()["metadata"]["resourceVersion"])
    with pytest.raises(KubeError, match="kubectl-edit"):
        cloud.provider.apply(cloud.template(queue="team-a", env={"NCCL_DEBUG": "INFO"}))


_GROUP = {"name": "w", "cpus": "1", "memory": "2Gi", "replicas": 2, "max_replicas": 4}


def test_a_new_group_of_an_elastic_cluster_has_kueues_gate(cloud: Cloud) -> None:
    admitted(cloud, elastic=True)
    body = cloud.live()
    new = {**body["spec"]["workerGroupSpecs"][0], "groupName": "more"}
    new["template"] = {**new["template"], "spec": {**new["template"]["spec"]}}
    del new["template"]["spec"]["schedulingGates"]
    groups = [*body["spec"]["workerGroupSpecs"], new]
    with pytest.raises(AssertionError, match="must have the ElasticJobSchedulingGate"):
        cloud.patch("one", {"spec": {"workerGroupSpecs": groups}}, manager="kubectl")
    wanted = cloud.template(queue="team-a", worker_groups=[_GROUP, {**_GROUP, "name": "more"}])
    effect = cloud.provider.effect(wanted)
    assert effect.kind is EditKind.RESTART
    assert "admits the whole cluster again" in effect.sentence
    cloud.provider.apply(wanted, force=True)
    groups = cloud.live()["spec"]["workerGroupSpecs"]
    assert [group["groupName"] for group in groups] == ["w", "more"]
    for group in groups:
        assert group["template"]["spec"]["schedulingGates"] == [{"name": GATE}]


def test_kueue_refuses_another_priority_as_the_preview_says(cloud: Cloud) -> None:
    admitted(cloud, elastic=True)
    wanted = cloud.template(queue="team-a", queue_priority="high")
    assert "only while the cluster is suspended" in cloud.provider.effect(wanted).sentence
    with pytest.raises(KubeError, match="cannot be added to a non-suspended workload"):
        cloud.provider.apply(wanted, force=True)


# With an operator and a Kueue, which are then beside all tests that follow


@pytest.fixture
def queue(standin: StandIn, namespace: str) -> Iterator[str]:
    """A queue of 4 CPUs."""
    with Farm(standin, requeue_s=0.2, with_kueue=True) as farm:
        farm.add_node("pool-1", labels={"pool": "cpu"})
        standin.put({
            "apiVersion": f"{kueue.GROUP}/{kueue.VERSION}", "kind": "ResourceFlavor",
            "metadata": {"name": "default-flavor"}, "spec": {"nodeLabels": {"pool": "cpu"}},
        })  # fmt: skip
        standin.put(kueue.cluster_queue(f"cpus-{namespace}", cpu="4", memory="64Gi"))
        link = kueue.local_queue("team-a", namespace=namespace, cluster_queue=f"cpus-{namespace}")
        standin.put(link)
        yield "team-a"


def test_it_stays_ready_while_further_workers_wait_for_quota(cloud: Cloud, queue: str) -> None:
    """Its workers take runs meanwhile; whoever scales it waits, with the reason."""
    assert cloud.provider.up(cloud.template(queue=queue)).is_ready
    cloud.provider.scale("one", ClusterSize(workers={"w": 4}), wait=False)
    info = until(lambda: _of_quota(cloud))
    assert (info.state, info.workers_ready, info.workers_wanted) == (ClusterState.READY, 2, 4)
    assert info.waiting[0].kind == "quota"
    assert info.message == info.waiting[0].message
    assert info.num_gpus == 8.0, "what Ray reports"
    ready = Cluster("one", provider=cloud.provider).ready_info()
    assert ready.is_ready, "a run is not held up"
    assert cloud.provider.up(cloud.template(queue=queue)).is_ready
    lines: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        size = ClusterSize(workers={"w": 4})
        waits = pool.submit(cloud.provider.scale, "one", size, progress=lines.append)
        until(lambda: any("for quota of queue team-a" in line for line in lines))
        assert not waits.done()
        assert cloud.provider.scale("one", ClusterSize(workers={"w": 3})).workers_ready == 3
        with pytest.raises(ClusterStateError, match="somebody else has set it back to w=3"):
            waits.result(60)


def _of_quota(cloud: Cloud) -> ClusterInfo | None:
    info = cloud.provider.get("one")
    return info if info.waiting and info.waiting[0].kind == "quota" else None
