"""Kubelets with real processes: containers that outlive a killed one, and one that cannot start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.waiting import until

PODS = "/api/v1/namespaces/{}/pods"
# Container and child end at SIGTERM; a shell would wait for its child first.
SLEEP = ["/bin/bash", "-c", "sleep 1000 & exec sleep 1000"]


@pytest.fixture
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(standin, mode="real", grace_s=1, parts="scheduler,kubelet") as running:
        yield running
    assert running.processes() == []


def pids(farm: Farm, pod: str) -> list[int]:
    """Of a pod's container, then of its child."""
    mine = [p for p in farm.processes() if p.environ()["HOSTNAME"] == pod]
    return [p.pid for p in sorted(mine, key=psutil.Process.create_time)]


def status(farm: Farm, namespace: str, pod: str) -> dict[str, Any]:
    return dict(farm.http.get(f"{PODS.format(namespace)}/{pod}").json().get("status") or {})


def restarts(farm: Farm, namespace: str, pod: str) -> list[Any]:
    states = status(farm, namespace, pod).get("containerStatuses", [])
    return [(one["restartCount"], one["ready"]) for one in states]


def test_a_killed_kubelet(farm: Farm, namespace: str) -> None:
    path = PODS.format(namespace)
    names = ("kept", "ends", "deleted", "forced")
    container = {"name": "main", "image": "any", "command": SLEEP}
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        farm.http.post(path, json=body).raise_for_status()
    until(
        lambda: all(restarts(farm, namespace, name) == [(0, True)] for name in names),
        report=farm.report,
    )
    before = {name: pids(farm, name) for name in names}
    assert all(len(two) == 2 for two in before.values())
    reported = status(farm, namespace, "kept")
    farm.kill_operator()
    assert {name: pids(farm, name) for name in names} == before
    for pid in before["ends"]:
        psutil.Process(pid).kill()
    farm.http.delete(f"{path}/deleted")
    farm.http.delete(f"{path}/forced", params={"gracePeriodSeconds": "0"})
    assert pids(farm, "deleted") == before["deleted"]

    farm.start_operator()
    until(lambda: restarts(farm, namespace, "ends") == [(1, True)], report=farm.report)
    until(lambda: not pids(farm, "deleted") and not pids(farm, "forced"), report=farm.report)
    until(lambda: len(farm.pods(namespace)) == 2, report=farm.report)
    assert pids(farm, "kept") == before["kept"]
    assert status(farm, namespace, "kept") == reported
    addresses = [status(farm, namespace, name)["podIP"] for name in ("kept", "ends")]

    # A second time, and a pod that comes after it gets an address of its own.
    farm.kill_operator()
    farm.start_operator()
    body = {"metadata": {"name": "new"}, "spec": {"containers": [container]}}
    farm.http.post(path, json=body).raise_for_status()
    until(lambda: restarts(farm, namespace, "new") == [(0, True)], report=farm.report)
    assert status(farm, namespace, "new")["podIP"] not in addresses
    assert restarts(farm, namespace, "ends") == [(1, True)]
    assert pids(farm, "kept") == before["kept"]
    psutil.Process(before["kept"][0]).kill()
    until(lambda: restarts(farm, namespace, "kept") == [(1, True)], report=farm.report)


def test_a_secret_that_is_missing_keeps_a_container_from_starting(
    farm: Farm, namespace: str
) -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "a"}}}]
    container = {"name": "main", "image": "any", "command": SLEEP, "env": env}
    body = {"metadata": {"name": "waits"}, "spec": {"containers": [container]}}
    farm.http.post(PODS.format(namespace), json=body).raise_for_status()

    def waiting() -> dict[str, str]:
        states = status(farm, namespace, "waits").get("containerStatuses", [])
        return next((one["state"].get("waiting") or {} for one in states), {})

    until(lambda: waiting().get("message"), report=farm.report)
    reported = {"reason": "CreateContainerConfigError", "message": 'secret "absent" not found'}
    assert waiting() == reported
    assert farm.processes() == []
