"""Watches a RayCluster and acts as its kubelet, as the recorder of the traces did."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx

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
        self.post(cluster)
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

    def post(self, cluster: Obj) -> None:
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
