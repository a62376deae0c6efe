"""Real Ray nodes behind the pods of a RayCluster, with token auth."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.manifests import RAYCLUSTERS, group, raycluster
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
MERGE = {"Content-Type": "application/merge-patch+json"}
PROXY = "/api/v1/namespaces/{}/services/real-head-svc:dashboard/proxy{}"


@pytest.fixture
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(standin, mode="real", grace_s=1) as running:
        yield running
    assert running.processes() == []


class Real:
    """One real Ray of a head and a worker, as a test has it."""

    def __init__(self, farm: Farm, namespace: str) -> None:
        self.farm, self.http, self.namespace = farm, farm.http, namespace
        self.path = f"{RAYCLUSTERS.format(namespace)}/real"
        self.headers: dict[str, str] = {}

    def start(self) -> None:
        """A command of the container's own runs before Ray; variables, mounts as in a pod."""
        self.http.post(f"/api/v1/namespaces/{self.namespace}/secrets", json={
            "metadata": {"name": "hub"}, "stringData": {"token": "hf_secret"},
        }).raise_for_status()  # fmt: skip
        show = 'echo "seen $HF_TOKEN $(cat /etc/hub/token) at $WHERE"'
        secret = {"secretKeyRef": {"name": "hub", "key": "token"}}
        env = [{"name": "HF_TOKEN", "valueFrom": secret}, {"name": "WHERE", "value": "/etc/hub"}]
        head = {
            "volumes": [{"name": "hub", "secret": {"secretName": "hub"}}],
            "containers": [{
                "name": "ray-head", "image": "rayproject/ray:2.60.0", "args": [show], "env": env,
                "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
                "volumeMounts": [{"name": "hub", "mountPath": "/etc/hub"}],
            }],
        }  # fmt: skip
        workers = group(replicas=1, rayStartParams={"num-gpus": "8"})
        body = raycluster("real", workers, head=head)
        self.http.post(RAYCLUSTERS.format(self.namespace), json=body)
        self.until_state("ready")
        secret_path = f"/api/v1/namespaces/{self.namespace}/secrets/real"
        data = self.http.get(secret_path).json()["data"]
        token = base64.b64decode(data["auth_token"]).decode()
        self.headers = {"X-Ray-Authorization": f"Bearer {token}"}

    def until_state(self, wanted: str) -> None:
        def is_so() -> bool:
            return bool(self.http.get(self.path).json().get("status", {}).get("state") == wanted)

        until(is_so, report=self.farm.report)

    def suspend(self) -> None:
        self.http.patch(self.path, json={"spec": {"suspend": True}}, headers=MERGE)
        self.until_state("suspended")

    def ask(self, path: str, *, headers: dict[str, str] | None = None) -> httpx.Response:
        url = PROXY.format(self.namespace, path)
        answer: httpx.Response = self.http.get(
            url, headers=self.headers if headers is None else headers
        )
        return answer

    def session(self) -> str:
        answer = self.ask("/api/version")
        return str(answer.json()["session_name"]) if answer.status_code == 200 else ""


def test_a_ray_of_two_pods_lives_and_ends(standin: StandIn, farm: Farm, namespace: str):
    real = Real(farm, namespace)
    real.start()
    (pod,) = [p for p in farm.pods(namespace) if "-head-" in p["metadata"]["name"]]
    name = pod["metadata"]["name"]
    assert "seen hf_secret hf_secret at " in farm.tail(pod, 100_000)
    log = farm.http.get(f"/api/v1/namespaces/{namespace}/pods/{name}/log")
    assert "seen hf_secret" in log.text

    # The tunnel: without Ray's token nobody is let in.
    assert real.ask("/api/version", headers={}).status_code == 401
    nodes = real.ask("/nodes?view=summary").json()
    found = [node["raylet"]["resourcesTotal"].get("GPU") for node in nodes["data"]["summary"]]
    assert sorted(found, key=str) == [8.0, None]

    # Pods outlive an API server that is away.
    session = real.session()
    before = {process.pid for process in farm.processes()}
    standin.fault("away", seconds=4)
    time.sleep(5)
    assert {process.pid for process in farm.processes()} >= before
    assert real.session() == session

    farm.restart_pod(name, namespace=namespace)
    until(lambda: real.session() not in ("", session), report=farm.report)
    # Resumed and deleted it is in product/test_end_to_end.py.
    real.suspend()
    assert farm.processes() == []


def test_a_secret_that_is_missing_keeps_a_container_from_starting(farm: Farm, namespace: str):
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "a"}}}]
    head = {"containers": [{"name": "ray-head", "image": "rayproject/ray:2.60.0", "env": env}]}
    farm.http.post(RAYCLUSTERS.format(namespace), json=raycluster("real", head=head))

    def reason() -> str:
        for pod in farm.pods(namespace):
            for status in pod["status"].get("containerStatuses") or []:
                waiting = status["state"].get("waiting") or {}
                if waiting.get("message"):
                    return f"{waiting['reason']}: {waiting['message']}"
        return ""

    assert (
        until(reason, report=farm.report) == 'CreateContainerConfigError: secret "absent" not found'
    )
    assert farm.processes() == []
