"""Faults on Kubernetes and the messages that users read; no run loses a line."""

from __future__ import annotations

import copy
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ClusterStartError, ConfigError, LLMOpsError
from tests.k8s.recordings import RAYCLUSTER_CRD
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.k8s.support.user_namespace import UserNamespace, user_namespace_of
from tests.providers.kuberay.ray_dashboard import RayDashboard

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(
        standin, mode="simulated", ready_after_s=0.1, requeue_s=0.2, with_kueue=True
    ) as running:
        yield running


@pytest.fixture
def ray() -> Iterator[RayDashboard]:
    with RayDashboard() as answering:
        yield answering


@pytest.fixture
def user(
    standin: StandIn,
    namespace: str,
    ray: RayDashboard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[UserNamespace]:
    yield from user_namespace_of(standin, namespace, ray, tmp_path, monkeypatch)


def not_ready(path: Path, expected: str) -> ClusterStartError:
    """Start a cluster and return the error of a wait once it contains the expected words."""
    cluster = llmops.up(path)
    error = awaited_error(cluster, expected)
    # Status says the same, and so does the list.
    reasons = [reason.message for reason in cluster.info.waiting]
    assert any(reason in error.message for reason in reasons), reasons
    return error


def awaited_error(cluster: llmops.Cluster, expected: str) -> ClusterStartError:
    deadline_s = time.monotonic() + 60
    while True:
        with pytest.raises(ClusterStartError) as caught:
            cluster.wait(timeout_s=0.5)
        if expected in caught.value.message:
            return caught.value
        assert time.monotonic() < deadline_s, caught.value.message


# It never becomes ready

Case = tuple[Callable[[UserNamespace], Path], str, str]


def _quota(user: UserNamespace) -> Path:
    user.quota(pods="1")
    return user.template()


def _no_gpu(user: UserNamespace) -> Path:
    return user.template(group={"gpus": 8})


def _claim_pending(user: UserNamespace) -> Path:
    user.put(
        "PersistentVolumeClaim",
        "data",
        spec={
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        status={"phase": "Pending"},
    )
    return user.template(storage={"volumes": [{"mount": "/data", "claim": "data"}]})


def _claim_missing(user: UserNamespace) -> Path:
    return user.template(storage={"volumes": [{"mount": "/data", "claim": "other"}]})


def _label(user: UserNamespace) -> Path:
    return user.template(group={"node_selector": {"pool": "h100"}})


def _queue_full(user: UserNamespace) -> Path:
    name = f"all-{user.namespace}"
    user.standin.put(kueue.cluster_queue(name, cpu="1", memory="8Gi"))
    user.standin.put(kueue.local_queue("team-a", namespace=user.namespace, cluster_queue=name))
    return user.template(queue="team-a")


WAITS: dict[str, Case] = {
    "quota exceeded": (
        _quota,
        "1 of 1 worker waits: quota team of the namespace is exceeded: pods is at 1 of 1, 1 more",
        " describe resourcequota team`",
    ),
    "image that cannot be pulled": (
        lambda user: user.template(image="registry.example/nopull:1"),
        "The head and 1 of 1 worker wait: image registry.example/nopull:1 cannot be pulled",
        "image",
    ),
    "no GPU node": (
        _no_gpu,
        "1 of 1 worker waits: no node has 8 nvidia.com/gpu",
        "request less in the template",
    ),
    "no node with that label": (_label, "no node accepts the pod", "node_selector"),
    "claim pending": (
        _claim_pending,
        "volume claim data of storage class fast is not bound",
        "sto",
    ),
    "queue full": (
        _queue_full,
        "waits for quota of queue team-a; queue team-a is at 0 of 1 cpu",
        "this one can never provide so much",
    ),
    "queue missing": (
        lambda user: user.template(queue="team-b"),
        "There is no queue team-b in the namespace (existing: none)",
        "ask an administrator to create a LocalQueue",
    ),
    "claim missing": (_claim_missing, "there is no PersistentVolumeClaim other", "create it"),
}


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS.keys())
def test_why_it_waits_and_what_to_do(user: UserNamespace, case: Case) -> None:
    make, message, remedy = case
    error = not_ready(make(user), message)
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.usefixtures("farm")
def test_it_keeps_starting_once_the_reason_is_gone(user: UserNamespace, farm: Farm) -> None:
    error = not_ready(user.template(group={"gpus": 8}), GPU)
    assert GPU in error.message
    farm.add_node("gpu-1", cpu="64", memory="512Gi", gpu=8)
    assert llmops.cluster("lab").wait(timeout_s=30).info.is_ready


def test_operator_absent(user: UserNamespace, farm: Farm) -> None:
    farm.stop_operator()
    try:
        cluster = llmops.up(user.template())
        user.backdate("lab", by_s=14)
        error = awaited_error(cluster, "No KubeRay operator has processed it in")
    finally:
        farm.start_operator()
    assert "no status and no event" in error.message
    assert "kuberay-operator kuberay/kuberay-operator" in error.remedy
    assert cluster.wait(timeout_s=30).info.is_ready


# It is refused


def refused(path: Path) -> LLMOpsError:
    with pytest.raises(LLMOpsError) as caught:
        llmops.up(path)
    return caught.value


def test_no_further_cluster_by_the_quota(user: UserNamespace) -> None:
    user.put(
        "ResourceQuota",
        "team",
        spec={"hard": {"count/rayclusters.ray.io": "0"}},
    )
    error = refused(user.template())
    assert "quota team of the namespace is exceeded" in error.message
    assert "count/rayclusters.ray.io is at 0 of 0, 1 more requested" in error.message
    assert " describe resourcequota team`" in error.remedy
    assert not user.exists()


def test_more_worker_groups_than_kueue_takes(user: UserNamespace) -> None:
    groups = [{"name": f"g{i}", "cpus": "1", "memory": "1Gi"} for i in range(18)]
    error = refused(user.template(queue="team-a", worker_groups=groups))
    assert isinstance(error, ConfigError)
    assert "18 worker groups" in error.message
    assert "17 besides the head" in error.message
    assert not user.exists()


def test_a_token_that_is_renewed_by_a_command_is_renewed(user: UserNamespace, farm: Farm) -> None:
    file = user.folder / "token"
    file.write_text("short1")
    rules = _everything()
    user.standin.user("short", "short1", rules)
    user.standin.user("short", "short2", rules)
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "TOKEN"},
    }
    program = (
        f"print({json.dumps(json.dumps(credential))}.replace('TOKEN', open({str(file)!r}).read()))"
    )
    Path(os.environ["KUBECONFIG"]).unlink()
    user.login("", command=[sys.executable, "-c", program])
    cluster = llmops.up(user.template()).wait(timeout_s=30)
    file.write_text("short2")
    user.standin.fault("expire", token="short1")
    assert cluster.info.is_ready
    assert cluster.jobs() == []


def _everything() -> list[Any]:
    from tests.k8s.standin.process import PolicyRule

    return [PolicyRule(("*",), ("*",), ("*",))]


# Another KubeRay than that of today


def other_crd(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    found = json.loads(gzip.decompress(RAYCLUSTER_CRD.read_bytes()))
    found = copy.deepcopy(found)
    for version in found["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        change(schema)
    return found


def _as_1_4(schema: dict[str, Any]) -> None:
    """What came later is not known yet."""
    spec = schema["spec"]["properties"]
    for later in ("authOptions", "upgradeStrategy", "historyServerOptions", "networkPolicy"):
        spec.pop(later, None)
    spec.pop("tlsOptions", None)
    spec["headGroupSpec"]["properties"].pop("resources", None)
    group = spec["workerGroupSpecs"]["items"]["properties"]
    group.pop("resources", None)
    group.pop("priority", None)


def _as_later(schema: dict[str, Any]) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema["spec"]["properties"]["idleTerminationOptions"] = anything
    schema["spec"]["properties"]["idleSuspend"] = {"type": "boolean"}
    schema["status"]["properties"]["weather"] = anything


@pytest.fixture(params=[_as_1_4, _as_later], ids=["1.4", "later"])
def other_user(
    request: pytest.FixtureRequest,
    ray: RayDashboard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[UserNamespace]:
    """A separate API server: a CRD belongs to all namespaces."""
    crd = other_crd(request.param)
    with StandIn(crd=None) as standin:
        standin.install_crd(crd)
        namespace = standin.create_namespace("team")
        with Farm(standin, mode="simulated", ready_after_s=0.1, requeue_s=0.2):
            yield from user_namespace_of(standin, namespace, ray, tmp_path, monkeypatch)


def test_an_older_and_a_newer_crd(other_user: UserNamespace, ray: RayDashboard) -> None:
    cluster = llmops.up(other_user.template()).wait(timeout_s=40)
    assert cluster.info.is_ready
    path = f"/apis/ray.io/v1/namespaces/{other_user.namespace}/rayclusters/lab"
    patch = {"spec": {"idleSuspend": False}, "status": {"weather": {"is": "fine"}}}
    with other_user.standin.client() as http:
        spec = http.get(path).json()["spec"]
        is_new = "authOptions" in spec
        if is_new:
            headers = {"Content-Type": "application/merge-patch+json"}
            assert http.patch(path, json=patch, headers=headers).is_success
            assert http.patch(f"{path}/status", json=patch, headers=headers).is_success
    # Token authentication is on with either.
    assert any("X-Ray-Authorization" in headers for headers in ray.headers)
    assert cluster.scale(workers={"w": 2}, wait=True).info.workers_ready == 2
    assert llmops.up(other_user.template()).info.message == ""
    cluster.suspend()
    cluster.resume(wait=True)
    assert cluster.info.is_ready
    cluster.suspend()
    assert llmops.up(other_user.template()).wait(timeout_s=40).info.is_ready
    cluster.delete()
    assert not other_user.exists()
