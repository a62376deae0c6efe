"""Real Ray nodes behind the pods of a RayCluster, with token auth."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.k8s.farm import Farm
from tests.k8s.manifests import RAYCLUSTERS, group, raycluster
from tests.k8s.standin import StandIn

pytestmark = [pytest.mark.ray, pytest.mark.slow]
MERGE = {"Content-Type": "application/merge-patch+json"}
PROXY = "/api/v1/namespaces/{}/services/real-head-svc:dashboard/proxy{}"


@pytest.fixture
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(standin, mode="real", grace_s=1) as running:
        yield running
    assert running.processes() == []


def until(condition: Callable[[], Any], farm: Farm, *, timeout_s: float = 240) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, farm.report()
        time.sleep(0.1)
    return found


def test_a_ray_of_two_pods_lives_and_ends(standin: StandIn, farm: Farm, namespace: str):
    http, path = farm.http, f"{RAYCLUSTERS.format(namespace)}/real"
    http.post(f"/api/v1/namespaces/{namespace}/secrets", json={
        "metadata": {"name": "hub"}, "stringData": {"token": "hf_secret"},
    }).raise_for_status()  # fmt: skip
    # A command of the container's own runs before Ray; variables and mounts are as in a pod.
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
    http.post(RAYCLUSTERS.format(namespace), json=raycluster("real", workers, head=head))

    def state() -> str:
        return str(http.get(path).json().get("status", {}).get("state"))

    until(lambda: state() == "ready", farm)
    (pod,) = [p for p in farm.pods(namespace) if "-head-" in p["metadata"]["name"]]
    assert "seen hf_secret hf_secret at " in farm.tail(pod, 100_000)
    log = http.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log")
    assert "seen hf_secret" in log.text

    # The tunnel: without Ray's token nobody is let in.
    data = http.get(f"/api/v1/namespaces/{namespace}/secrets/real").json()["data"]
    token = base64.b64decode(data["auth_token"]).decode()
    headers = {"X-Ray-Authorization": f"Bearer {token}"}
    assert http.get(PROXY.format(namespace, "/api/version")).status_code == 401
    told = http.get(PROXY.format(namespace, "/api/version"), headers=headers).json()
    nodes = http.get(PROXY.format(namespace, "/nodes?view=summary"), headers=headers).json()
    found = [node["raylet"]["resourcesTotal"].get("GPU") for node in nodes["data"]["summary"]]
    assert sorted(found, key=str) == [8.0, None]

    # Pods outlive an API server that is away.
    before = {process.pid for process in farm.processes()}
    standin.fault("away", seconds=4)
    time.sleep(5)
    assert {process.pid for process in farm.processes()} >= before
    answer = http.get(PROXY.format(namespace, "/api/version"), headers=headers)
    assert answer.json()["session_name"] == told["session_name"]

    farm.restart_pod(pod["metadata"]["name"], namespace=namespace)

    def session() -> str:
        answer = http.get(PROXY.format(namespace, "/api/version"), headers=headers)
        return str(answer.json()["session_name"]) if answer.status_code == 200 else ""

    until(lambda: session() not in ("", told["session_name"]), farm)

    http.patch(path, json={"spec": {"suspend": True}}, headers=MERGE).raise_for_status()
    until(lambda: state() == "suspended", farm)
    assert farm.processes() == []
    http.patch(path, json={"spec": {"suspend": False}}, headers=MERGE).raise_for_status()
    until(lambda: state() == "ready", farm)
    http.delete(path).raise_for_status()
    until(lambda: not farm.pods(namespace) and not farm.processes(), farm)


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

    assert until(reason, farm) == 'CreateContainerConfigError: secret "absent" not found'
    assert farm.processes() == []
