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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.k8s.farm import Farm
from tests.k8s.standin import RECORDINGS, StandIn

Obj = dict[str, Any]
CLUSTERS = "/apis/ray.io/v1/namespaces/{}/rayclusters"
MERGE = {"Content-Type": "application/merge-patch+json"}
STATUS_NOISE = ("lastUpdateTime", "stateTransitionTimes", "conditions")


class Recording:
    """Follows one RayCluster as the recorder of the traces did."""

    def __init__(self, http: httpx.Client, namespace: str, name: str):
        self.http, self.namespace, self.name = http, namespace, name
        self.changes: list[Obj] = []
        self._last: Obj = {}
        answer = http.get(CLUSTERS.format(namespace)).json()
        self._version = answer["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        params = {"watch": "1", "resourceVersion": self._version, "timeoutSeconds": "120"}
        path = CLUSTERS.format(self.namespace)
        # The server may end before this thread does.
        with (
            suppress(httpx.HTTPError),
            self.http.stream("GET", path, params=params, timeout=130) as lines,
        ):
            for line in lines.iter_lines():
                event = json.loads(line)
                if event["object"]["metadata"].get("name") == self.name:
                    self._note(event["type"], event["object"])
                if event["type"] == "DELETED":
                    return

    def _note(self, kind: str, cluster: Obj) -> None:
        status, meta = cluster.get("status") or {}, cluster["metadata"]
        diff = {
            field: status.get(field)
            for field in sorted({*status, *self._last} - set(STATUS_NOISE))
            if status.get(field) != self._last.get(field)
        }
        lines = {"{type}={status}:{reason}:{message}".format(**c) for c in conditions(status)}
        before = {"{type}={status}:{reason}:{message}".format(**c) for c in conditions(self._last)}
        if changed := sorted(lines - before):
            diff["conditions"] = changed
        self._last = status
        self.changes.append({
            "kind": f"CR {kind}", "gen": meta["generation"], "finalizers": meta.get("finalizers"),
            "deleting": "deletionTimestamp" in meta, "diff": diff,
        })  # fmt: skip

    def until(self, wanted: Callable[[Obj], bool], what: str) -> None:
        """Until a change like that has come, and a little longer, for what may follow."""
        deadline_s = time.monotonic() + 30
        while not any(wanted(change) for change in self.changes):
            assert time.monotonic() < deadline_s, f"{what} did not come: {self.changes}"
            time.sleep(0.02)
        time.sleep(0.15)


def conditions(status: Obj) -> list[Obj]:
    return list(status.get("conditions") or [])


def set_field(field: str, value: Any) -> Callable[[Obj], bool]:
    return lambda change: change["diff"].get(field) == value


def set_condition(start: str) -> Callable[[Obj], bool]:
    return lambda change: any(c.startswith(start) for c in change["diff"].get("conditions", []))


class Driver:
    """Acts as the recorder's kubelet and user: one step after the other."""

    def __init__(self, http: httpx.Client, namespace: str, name: str, *, forgets: bool):
        self.http, self.namespace, self.name = http, namespace, name
        self.recording = Recording(http, namespace, name)
        # The first recording's kubelet left reason and message when a pod became ready.
        self._forgets = forgets
        self._seen = 0

    def run(self, cluster: Obj) -> None:
        self._post(cluster)
        self.recording.until(set_condition("RayClusterProvisioned=False"), "the first status")
        self.wait_pods(3)

    def live(self) -> None:
        """Through image pull, readiness, a head that is unready and a worker that fails."""
        head, one, two = self.head(), *self.workers()
        self.kubelet(head, "Pending", waiting="ImagePullBackOff")
        self.kubelet(head, "Running", ip="10.1.0.1")
        self.kubelet(head, "Running", ip="10.1.0.1", is_ready=True)
        for number, worker in enumerate((one, two), 2):
            self.kubelet(worker, "Running", ip=f"10.1.0.{number}", waiting="PodInitializing")
            self.kubelet(worker, "Running", ip=f"10.1.0.{number}", is_ready=True)
        self.kubelet(head, "Running", ip="10.1.0.1")
        self.kubelet(head, "Running", ip="10.1.0.1", is_ready=True)
        self.kubelet(one, "Failed")
        self.wait_pods(3, phases={"Running": 2, "Pending": 1})

    def suspend_and_resume(self) -> None:
        self._patch({"spec": {"suspend": True}})
        self.recording.until(set_field("state", "suspended"), "suspended")
        self.wait_pods(0)
        self._patch({"spec": {"suspend": False}})
        self.recording.until(set_condition("RayClusterSuspended=False"), "resume")
        self.wait_pods(3)
        time.sleep(0.5)

    def delete(self) -> Obj:
        answer = self.http.delete(f"{CLUSTERS.format(self.namespace)}/{self.name}")
        time.sleep(0.5)
        return dict(answer.json())

    def kubelet(
        self, pod: str, phase: str, *, ip: str = "", is_ready: bool = False, waiting: str = ""
    ) -> None:
        """Report a pod's state, and wait for the change of the RayCluster that it causes."""
        container = "ray-head" if "-head-" in pod else "ray-worker"
        before = len(self.recording.changes)
        ready: Obj = {"type": "Ready", "status": "True" if is_ready else "False"}
        if not is_ready or not self._forgets:
            ready["reason"] = "ContainersNotReady"
            ready["message"] = f"containers with unready status: [{container}]"
        state: Obj = {"running": {}}
        if waiting and phase == "Pending":
            state = {"waiting": {"reason": waiting, "message": "msg"}}
        status: Obj = {"phase": phase, "conditions": [ready], "containerStatuses": []}
        if phase != "Failed":
            status["containerStatuses"] = [{
                "name": container, "image": "", "imageID": "", "ready": is_ready,
                "restartCount": 0, "state": state,
            }]  # fmt: skip
        if ip:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/status"
        self.http.patch(path, json={"status": status}, headers=MERGE).raise_for_status()
        deadline_s = time.monotonic() + 20
        while len(self.recording.changes) == before:
            assert time.monotonic() < deadline_s, f"{pod} {phase}: no change of the cluster"
            time.sleep(0.02)
        time.sleep(0.15)

    def wait_pods(self, count: int, phases: dict[str, int] | None = None) -> None:
        deadline_s = time.monotonic() + 20
        while True:
            found = [pod["status"]["phase"] for pod in self.pods()]
            if len(found) == count and (
                phases is None or all(found.count(p) == n for p, n in phases.items())
            ):
                return
            assert time.monotonic() < deadline_s, found
            time.sleep(0.05)

    def pods(self) -> list[Obj]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        params = {"labelSelector": f"ray.io/cluster={self.name}"}
        return list(self.http.get(path, params=params).json()["items"])

    def head(self) -> str:
        return next(p["metadata"]["name"] for p in self.pods() if "-head-" in p["metadata"]["name"])

    def workers(self) -> list[str]:
        found = [pod for pod in self.pods() if "-worker-" in pod["metadata"]["name"]]
        label = "ray.io/worker-group-replica-index"
        found.sort(key=lambda pod: pod["metadata"]["labels"][label])
        return [pod["metadata"]["name"] for pod in found]

    def _post(self, cluster: Obj) -> None:
        self.http.post(CLUSTERS.format(self.namespace), json=cluster).raise_for_status()

    def _patch(self, patch: Obj) -> None:
        path = f"{CLUSTERS.format(self.namespace)}/{self.name}"
        self.http.patch(path, json=patch, headers=MERGE).raise_for_status()

    def events(self) -> list[Obj]:
        path = f"/api/v1/namespaces/{self.namespace}/events"
        params = {"fieldSelector": f"involvedObject.name={self.name}"}
        found = self.http.get(path, params=params).json()["items"]
        found.sort(key=lambda event: event["eventTime"])
        return list(found)


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


def told(events: list[Obj], namespace: str) -> list[tuple[str, str, str]]:
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
    driver._post(cluster)
    deadline_s = time.monotonic() + 10
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
    assert told(driver.events(), namespace) == told(recorded_events(entries), namespace)
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
    file = RECORDINGS / f"pods-{which}.json"
    if file.exists():  # There is none of Redis.
        recorded = [plain_pod(pod) for pod in json.loads(file.read_text())]
        assert [plain_pod(pod) for pod in as_in_default(found, namespace)] == recorded


def summary(pod: Obj, namespace: str) -> Obj:
    """As the recorder of the traces told a pod."""
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
    driver._post(
        manifest(
            "tr-auto", namespace, enableInTreeAutoscaling=True, autoscalerOptions=options,
        )
    )  # fmt: skip
    deadline_s = time.monotonic() + 10
    while not driver.events():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    time.sleep(1)
    assert told(driver.events(), namespace) == told(recorded_events(entries), namespace)
    assert driver.pods() == []
    assert driver.delete()["kind"] == "Status"
    assert changes(driver.recording.changes) == changes(entries)


@pytest.fixture(autouse=True)
def _recordings() -> None:
    if not Path(RECORDINGS).exists():
        pytest.skip("no recordings of the real operator (shared/kubernetes) beside the repository")
