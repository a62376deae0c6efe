"""The stand-in of KubeRay's operator does what the real one was recorded doing.

Compared: each change of the RayCluster (generation, finalizers, deletion, status) in order; the
pods, head service and secret that were made; the events. Not compared: times; random ends of names,
tokens and uids; the hash of the spec (of Go's JSON); in how many steps the counts fall while pods
vanish, and how often equal events come in a row (both depend on how quick that is); objects that
the recordings have left over from one another; what garbage collection does after the end.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest
import yaml

from tests.k8s.recordings import RECORDINGS
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.trace_driver import Driver, Obj


@pytest.fixture(scope="module")
def farm(standin: StandIn) -> Iterator[Farm]:
    with Farm(standin, parts="operator", default_node=False, requeue_s=0.3) as running:
        for name in ("interactive", "training-high"):
            standin.put({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": 1000,
            })  # fmt: skip
        yield running


def manifest(name: str, namespace: str, **spec: Any) -> Obj:
    """What was recorded: the H100 manifest without what this recording is not about."""
    cluster = yaml.safe_load((RECORDINGS / "h100.yaml").read_text())
    cluster["metadata"] = {"name": name, "namespace": namespace}
    for field in (
        "authOptions", "gcsFaultToleranceOptions", "autoscalerOptions", "enableInTreeAutoscaling",
    ):  # fmt: skip
        del cluster["spec"][field]
    del cluster["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"]
    container = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    probe = {"httpGet": {"path": "/api/healthz", "port": 8265}, "periodSeconds": 5}
    container["readinessProbe"] = probe
    cluster["spec"] |= spec
    return dict(cluster)


def trace(name: str) -> list[Obj]:
    return list(json.loads((RECORDINGS / f"trace-{name}.json").read_text()))


def changes(entries: list[Obj]) -> list[Obj]:
    """Of the RayCluster, with what is random masked and the fall of counts in one step."""
    found = [
        {key: value for key, value in entry.items() if key != "t"}
        for entry in masked(entries)
        if entry["kind"].startswith("CR ")
    ]
    merged: list[Obj] = []
    for change in found:
        previous = merged[-1]["diff"] if merged else {}
        falls = set(previous) == {"availableWorkerReplicas", "readyWorkerReplicas"}
        if falls and merged[-1]["gen"] == change["gen"] and suspends(change):
            merged[-1]["diff"] = previous | change["diff"]
        else:
            merged.append(change)
    return merged


def suspends(change: Obj) -> bool:
    return change["diff"].get("state") == "suspended"


def masked(value: Any) -> Any:
    text = json.dumps(value)
    text = re.sub(r"(-(?:head|worker)-)[a-z0-9]{5}\b(?!-)", r"\1#####", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r'"[0-9A-V]{32}"', '"HASH"', text)
    return json.loads(text)


def texts(events: list[Obj], namespace: str) -> list[tuple[str, str, str]]:
    """Type, reason and the first 160 characters; equal ones in a row once."""
    lines = [
        (
            event["type"], event["reason"],
            masked(event.get("msg") or event["message"].replace(namespace, "default")[:160]),
        )
        for event in events
    ]  # fmt: skip
    return [line for line, _ in itertools.groupby(lines)]


def recorded_events(entries: list[Obj]) -> list[Obj]:
    return [entry for entry in entries if entry["kind"] == "event"]


def refused_first(driver: Driver, cluster: Obj) -> None:
    """The recording's first try, which broke a rule of the operator."""
    cluster = deepcopy(cluster)
    cluster["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] = 600
    driver.post(cluster)
    deadline_s = time.monotonic() + 60
    while not driver.events():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    driver.delete()


@pytest.mark.parametrize(
    ("which", "name", "spec"),
    [
        ("plain", "tr-plain", {}),
        ("token-auth", "tr-auth", {"authOptions": {"mode": "token"}}),
        ("redis-ft", "tr-ft", {"gcsFaultToleranceOptions": {
            "backend": "redis", "redisAddress": "redis:6379",
            "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
        }}),
    ],
)  # fmt: skip
def test_a_cluster_lives_as_recorded(farm: Farm, namespace: str, which: str, name: str, spec: Obj):
    entries, http = trace(which), farm.http
    cluster = manifest(name, namespace, **spec)
    if which == "plain":
        refused_first(Driver(http, namespace, name, forgets=False), cluster)
    driver = Driver(http, namespace, name, forgets=which != "plain")
    driver.run(cluster)
    pods = driver.pods()
    compare_pods(pods, entries, which, namespace)
    compare_service(http, entries, namespace, name)
    if which == "token-auth":
        secret = http.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").json()
        assert (sorted(secret["data"]), secret["type"]) == (["auth_token"], "Opaque")
    driver.live()
    driver.suspend_and_resume()
    assert texts(driver.events(), namespace) == texts(recorded_events(entries), namespace)
    assert all(event["source"] == {} for event in driver.events())
    assert {e["reportingComponent"] for e in driver.events()} == {"raycluster-controller"}
    deleted = driver.delete()
    # With a finalizer a delete returns the object, else a Status.
    assert deleted["kind"] == ("RayCluster" if which == "redis-ft" else "Status")
    assert changes(driver.recording.changes) == changes(entries)
    if which == "redis-ft":
        driver.wait_pods(0)


def compare_pods(pods: list[Obj], entries: list[Obj], which: str, namespace: str) -> None:
    label = "ray.io/worker-group-replica-index"
    found = sorted(
        pods,
        key=lambda p: (masked(p["metadata"]["name"]), p["metadata"]["labels"].get(label, "")),
    )
    wanted = [entry for entry in masked(entries) if entry["kind"] == "pod"]
    assert [summary(pod, namespace) for pod in found] == [
        {key: value for key, value in entry.items() if key != "t"} for entry in wanted
    ]
    if which != "redis-ft":  # Its pods were not recorded.
        file = RECORDINGS / f"pods-{which}.json"
        recorded = [plain_pod(pod) for pod in json.loads(file.read_text())]
        assert [plain_pod(pod) for pod in as_in_default(found, namespace)] == recorded


def summary(pod: Obj, namespace: str) -> Obj:
    """Return a pod as the recorder of the traces wrote it."""
    pod = masked(as_in_default([pod], namespace)[0])
    spec, meta = pod["spec"], pod["metadata"]
    return {
        "kind": "pod", "name": meta["name"], "labels": dict(sorted(meta["labels"].items())),
        "ann": meta.get("annotations"),
        "init": [container["name"] for container in spec.get("initContainers", [])],
        "containers": [container["name"] for container in spec["containers"]],
        "phase": pod["status"]["phase"],
        "cmd": [container["args"] for container in spec["containers"]],
        "own": meta["ownerReferences"][0]["kind"],
    }  # fmt: skip


def as_in_default(value: Any, namespace: str) -> Any:
    return json.loads(json.dumps(value).replace(namespace, "default"))


def plain_pod(pod: Obj) -> Obj:
    """A pod without what only this one has."""
    pod = masked(pod)
    for field in ("creationTimestamp", "generation", "resourceVersion", "managedFields", "uid"):
        pod["metadata"].pop(field, None)
    return dict(pod)


def compare_service(http: httpx.Client, entries: list[Obj], namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services/{name}-head-svc"
    service = http.get(path).json()
    wanted = next(entry for entry in entries if entry["kind"] == "svc")
    spec = service["spec"]
    ports = [[p["name"], p["port"], p["targetPort"], p["appProtocol"]] for p in spec["ports"]]
    assert service["metadata"]["labels"] == wanted["labels"]
    assert (ports, spec["clusterIP"], spec["selector"]) == (
        wanted["ports"], wanted["ip"], wanted["selector"],
    )  # fmt: skip


def test_a_refused_cluster_has_an_event_and_no_status(farm: Farm, namespace: str):
    entries, http = trace("autoscaler-refused"), farm.http
    driver = Driver(http, namespace, "tr-auto", forgets=True)
    options = {"version": "v2", "idleTimeoutSeconds": 300}
    driver.post(
        manifest(
            "tr-auto", namespace, enableInTreeAutoscaling=True, autoscalerOptions=options,
        )
    )  # fmt: skip
    deadline_s = time.monotonic() + 60
    while not driver.events():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    time.sleep(1)
    assert texts(driver.events(), namespace) == texts(recorded_events(entries), namespace)
    assert driver.pods() == []
    assert driver.delete()["kind"] == "Status"
    assert changes(driver.recording.changes) == changes(entries)
