"""What goes wrong on Kubernetes, and what the user reads then; no run loses a line by it."""

from __future__ import annotations

import copy
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.clusters.kuberay.cache import close_caches
from llmops_kernel.errors import ClusterStartError, ConfigError, LLMOpsError
from tests.clusters.kuberay.ray_with_runs import RayWithRuns
from tests.k8s import kueue
from tests.k8s.farm import Farm
from tests.k8s.faulty_place import Place, place_of
from tests.k8s.standin import MISSING_CRD, RAYCLUSTER_CRD, StandIn

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(
        standin, mode="simulated", ready_after_s=0.1, requeue_s=0.2, with_kueue=True
    ) as running:
        yield running


@pytest.fixture
def ray() -> Iterator[RayWithRuns]:
    with RayWithRuns() as answering:
        yield answering


@pytest.fixture
def place(
    standin: StandIn,
    namespace: str,
    ray: RayWithRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    yield from place_of(standin, namespace, ray, tmp_path, monkeypatch)


def not_ready(path: Path, *, timeout_s: float = 6.0) -> ClusterStartError:
    """Asks for it, waits a moment, and gives what the user reads."""
    cluster = llmops.up(path)
    with pytest.raises(ClusterStartError) as caught:
        cluster.wait(timeout_s=timeout_s)
    # Status says the same, and so does the list.
    reasons = [reason.message for reason in cluster.info.waiting]
    assert any(reason in caught.value.message for reason in reasons), reasons
    return caught.value


# It never becomes ready

Case = tuple[Callable[[Place], Path], str, str]


def _quota(place: Place) -> Path:
    place.quota(pods="1")
    return place.template()


def _no_gpu(place: Place) -> Path:
    return place.template(group={"gpus": 8})


def _claim_pending(place: Place) -> Path:
    place.put(
        "PersistentVolumeClaim",
        "data",
        spec={
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        status={"phase": "Pending"},
    )
    return place.template(storage={"volumes": [{"mount": "/data", "claim": "data"}]})


def _claim_missing(place: Place) -> Path:
    return place.template(storage={"volumes": [{"mount": "/data", "claim": "other"}]})


def _label(place: Place) -> Path:
    return place.template(group={"node_selector": {"pool": "h100"}})


def _queue_full(place: Place) -> Path:
    name = f"all-{place.namespace}"
    place.standin.put(kueue.cluster_queue(name, cpu="1", memory="8Gi"))
    place.standin.put(kueue.local_queue("team-a", namespace=place.namespace, cluster_queue=name))
    return place.template(queue="team-a")


WAITS: dict[str, Case] = {
    "quota exceeded": (
        _quota,
        "1 of 1 worker waits: quota team of the namespace is exceeded: pods is at 1 of 1, 1 more",
        "kubectl describe resourcequota team",
    ),
    "image that cannot be pulled": (
        lambda place: place.template(image="registry.example/nopull:1"),
        "The head and 1 of 1 worker wait: image registry.example/nopull:1 cannot be pulled",
        "image",
    ),
    "no GPU node": (
        _no_gpu,
        "1 of 1 worker waits: no node has 8 nvidia.com/gpu",
        "ask for less in the template",
    ),
    "no node with that label": (_label, "no node takes the pod", "node_selector"),
    "claim pending": (
        _claim_pending,
        "volume claim data of storage class fast is not bound",
        "sto",
    ),
    "queue full": (
        _queue_full,
        "waits for quota of queue team-a; queue team-a is at 0 of 1 cpu",
        "this one can never give so much",
    ),
    "queue missing": (
        lambda place: place.template(queue="team-b"),
        "There is no queue team-b in the namespace (there is: none)",
        "have an admin make a LocalQueue",
    ),
    "claim missing": (_claim_missing, "there is no PersistentVolumeClaim other", "make it"),
}


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS.keys())
def test_why_it_waits_and_what_to_do(place: Place, case: Case) -> None:
    make, message, remedy = case
    error = not_ready(make(place))
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.usefixtures("farm")
def test_it_goes_on_by_itself_once_the_reason_is_gone(place: Place, farm: Farm) -> None:
    error = not_ready(place.template(group={"gpus": 8}))
    assert GPU in error.message
    farm.add_node("gpu-1", cpu="64", memory="512Gi", gpu=8)
    assert llmops.cluster("lab").wait(timeout_s=30).info.is_ready


def test_operator_absent(place: Place, farm: Farm) -> None:
    farm.stop_operator()
    try:
        cluster = llmops.up(place.template())
        with pytest.raises(ClusterStartError) as caught:
            cluster.wait(timeout_s=13)
    finally:
        farm.start_operator()
    assert "No operator has looked at it in 1" in caught.value.message
    assert "no status and no event" in caught.value.message
    assert "helm install kuberay-operator" in caught.value.remedy
    assert cluster.wait(timeout_s=30).info.is_ready


# It is refused


def refused(path: Path) -> LLMOpsError:
    with pytest.raises(LLMOpsError) as caught:
        llmops.up(path)
    return caught.value


def test_no_further_cluster_by_the_quota(place: Place) -> None:
    place.put(
        "ResourceQuota",
        "team",
        spec={"hard": {"count/rayclusters.ray.io": "0"}},
    )
    error = refused(place.template())
    assert "quota team of the namespace is exceeded" in error.message
    assert "count/rayclusters.ray.io is at 0 of 0, 1 more asked" in error.message
    assert "kubectl describe resourcequota team" in error.remedy
    assert not place.exists()


def test_namespace_missing(place: Place) -> None:
    error = refused(place.template(namespace="nowhere"))
    assert "There is no namespace 'nowhere' in context standin" in error.message
    assert "kubectl create namespace nowhere" in error.remedy


def test_name_too_long(place: Place) -> None:
    name = "a" * 60
    error = refused(place.template(name))
    assert "60" in error.message or "53" in str(error)
    assert not place.exists(name)


def test_more_worker_groups_than_kueue_takes(place: Place) -> None:
    groups = [{"name": f"g{i}", "cpus": "1", "memory": "1Gi"} for i in range(18)]
    error = refused(place.template(queue="team-a", worker_groups=groups))
    assert isinstance(error, ConfigError)
    assert "18 worker groups in a queue: Kueue takes 17 beside the head" in error.message
    assert not place.exists()


def test_expired_token(place: Place, farm: Farm) -> None:
    cluster = llmops.up(place.template()).wait(timeout_s=30)
    place.standin.user("ann", "anntoken", [])
    place.login("anntoken")
    place.standin.fault("expire", token="anntoken")
    close_caches()
    with pytest.raises(LLMOpsError) as caught:
        llmops.up(place.template())
    assert "does not take the credentials: expired or wrong" in caught.value.message
    assert caught.value.remedy
    # A new token in the kubeconfig is all that it takes.
    place.login(place.standin.admin_token)
    close_caches()
    assert cluster.info.is_ready


def test_a_token_that_is_renewed_by_a_command_is_renewed(place: Place, farm: Farm) -> None:
    file = place.folder / "token"
    file.write_text("short1")
    rules = _everything()
    place.standin.user("short", "short1", rules)
    place.standin.user("short", "short2", rules)
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "TOKEN"},
    }
    program = (
        f"print({json.dumps(json.dumps(credential))}.replace('TOKEN', open({str(file)!r}).read()))"
    )
    Path(os.environ["KUBECONFIG"]).unlink()
    place.login("", command=[sys.executable, "-c", program])
    cluster = llmops.up(place.template()).wait(timeout_s=30)
    file.write_text("short2")
    place.standin.fault("expire", token="short1")
    assert cluster.info.is_ready
    assert cluster.jobs() == []


def _everything() -> list[Any]:
    from tests.k8s.standin import PolicyRule

    return [PolicyRule(("*",), ("*",), ("*",))]


# Another KubeRay than that of today


def other_crd(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    if not RAYCLUSTER_CRD.exists():
        pytest.skip(MISSING_CRD)
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
def other_place(
    request: pytest.FixtureRequest,
    ray: RayWithRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """An API server of its own: a CRD is for all namespaces."""
    crd = other_crd(request.param)
    with StandIn(crd=None) as standin:
        standin.install_crd(crd)
        namespace = standin.create_namespace("team")
        with Farm(standin, mode="simulated", ready_after_s=0.1, requeue_s=0.2):
            yield from place_of(standin, namespace, ray, tmp_path, monkeypatch)


def test_an_older_and_a_newer_crd(other_place: Place, ray: RayWithRuns) -> None:
    cluster = llmops.up(other_place.template()).wait(timeout_s=40)
    assert cluster.info.is_ready
    path = f"/apis/ray.io/v1/namespaces/{other_place.namespace}/rayclusters/lab"
    patch = {"spec": {"idleSuspend": False}, "status": {"weather": {"is": "fine"}}}
    with other_place.standin.client() as http:
        spec = http.get(path).json()["spec"]
        is_new = "authOptions" in spec
        if is_new:
            headers = {"Content-Type": "application/merge-patch+json"}
            assert http.patch(path, json=patch, headers=headers).is_success
            assert http.patch(f"{path}/status", json=patch, headers=headers).is_success
    # Token authentication is on with either.
    assert any("X-Ray-Authorization" in headers for headers in ray.headers)
    assert cluster.scale(workers={"w": 2}, wait=True).info.workers_ready == 2
    assert llmops.up(other_place.template()).info.message == ""
    cluster.suspend()
    cluster.resume(wait=True)
    assert cluster.info.is_ready
    cluster.delete()
    assert not other_place.exists()
