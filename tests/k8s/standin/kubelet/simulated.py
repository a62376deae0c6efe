"""The node side: pods that were bound become Running and Ready, as their nodes would report."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from typing import Any

from tests.k8s.standin.nodes.scheduler import pod_path
from tests.k8s.standin.operator.status import condition
from tests.k8s.standin.runtime.client import Api, ApiError, Mirror, Obj
from tests.k8s.standin.runtime.events import Recorder, now

UNPULLABLE = "nopull"
"""Images with this in their name cannot be pulled."""
ORDER = "standin/do"
"""Annotation by which a test gives a kubelet an order: `fail` or `restart`."""


class Kubelet:
    """All nodes' kubelets in one; subclasses say what running means."""

    has_processes = False

    def __init__(self, api: Api, *, pods: Mirror, delay_s: float = 0.0):
        self.api, self.pods, self.delay_s = api, pods, delay_s
        self.events = Recorder(api, "kubelet", has_source=True)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._addresses = itertools.count(1)
        pods.listen(self._changed)

    def _changed(self, event: str, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        if event == "DELETED":
            if task := self._tasks.pop(uid, None):
                task.cancel()
            return
        if pod["metadata"].get("deletionTimestamp"):
            if uid not in self._ending:
                self._ending[uid] = self._spawn(self._let_go(pod, self._tasks.get(uid)))
            return
        if pod["spec"].get("nodeName") and uid not in self._tasks and not self._is_done(pod):
            self._tasks[uid] = self._spawn(self._live(pod))
        order = (pod["metadata"].get("annotations") or {}).get(ORDER)
        if order and uid in self._tasks:
            self._obey(pod, order)

    async def _let_go(self, pod: Obj, task: asyncio.Task[None] | None) -> None:
        """End what runs, then let the API server forget the pod."""
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.api.delete(pod_path(pod))
        self._ending.pop(pod["metadata"]["uid"], None)

    def _is_done(self, pod: Obj) -> bool:
        """There is nothing to do for it: it is over, or as far as it gets."""
        ready = condition(pod["status"], "Ready").get("status") == "True"
        return _is_over(pod) or (ready and not self.has_processes)

    def _obey(self, pod: Obj, order: str) -> None:
        if order == "fail" and not _is_over(pod):
            self._tasks[pod["metadata"]["uid"]].cancel()
            self._tasks[pod["metadata"]["uid"]] = self._spawn(self._fail(pod))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def _live(self, pod: Obj) -> None:
        try:
            await self._pull(pod)
            await self.run_pod(pod)
        except ApiError:
            return  # Deleted under our hands.

    async def run_pod(self, pod: Obj) -> None:
        """Until it is deleted; cancelled then."""
        status = self.status(pod, phase="Running", is_ready=False, ip=self.address())
        if self.delay_s:
            await self.write(pod, status)
            await asyncio.sleep(self.delay_s * random.uniform(0.5, 1.5))
        await self.write(pod, self.status(pod, phase="Running", is_ready=True, ip=status["podIP"]))

    async def _fail(self, pod: Obj) -> None:
        """The pod is over: its node has lost or evicted it."""
        states = [
            {**_container(container, False), "state": {"terminated": {
                "exitCode": 137, "reason": "Error", "finishedAt": now(), "startedAt": now(),
            }}}
            for container in pod["spec"]["containers"]
        ]  # fmt: skip
        status = self.status(pod, phase="Failed", is_ready=False, ip="")
        status |= {"containerStatuses": states, "reason": "Evicted", "message": "killed by a test"}
        status.pop("podIP")
        await self.write(pod, status)

    def address(self) -> str:
        number = next(self._addresses)
        return f"10.1.{number // 250}.{number % 250 + 1}"

    async def _pull(self, pod: Obj) -> None:
        """Returns when all images are there; never when one cannot be pulled."""
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        bad = next((c for c in containers if UNPULLABLE in c.get("image", "")), None)
        back_off_s = 0.5
        while bad is not None:
            image = bad["image"]
            await self.events.event(pod, "Pulling", f'Pulling image "{image}"')
            text = (
                f'Failed to pull image "{image}": failed to pull and unpack image "{image}":'
                f' failed to resolve reference "{image}": {image}: not found'
            )
            await self.events.event(pod, "Failed", text, type="Warning")
            await self.events.event(pod, "Failed", "Error: ErrImagePull", type="Warning")
            await self._write_waiting(pod, bad["name"], "ErrImagePull", text)
            await asyncio.sleep(back_off_s)
            text = f'Back-off pulling image "{image}": ErrImagePull: {text}'
            await self.events.event(pod, "BackOff", f'Back-off pulling image "{image}"')
            await self.events.event(pod, "Failed", "Error: ImagePullBackOff", type="Warning")
            await self._write_waiting(pod, bad["name"], "ImagePullBackOff", text)
            back_off_s = min(4 * back_off_s, 60)
            await asyncio.sleep(back_off_s)

    async def _write_waiting(self, pod: Obj, name: str, reason: str, message: str) -> None:
        status = self.status(pod, phase="Pending", is_ready=False, ip=self.address())
        for container in status["containerStatuses"] + status.get("initContainerStatuses", []):
            if container["name"] == name:
                container["state"] = {"waiting": {"reason": reason, "message": message}}
        await self.write(pod, status)

    async def write(self, pod: Obj, status: Obj) -> None:
        self.pods.put(await self.api.merge(f"{pod_path(pod)}/status", {"status": status}))

    def status(
        self, pod: Obj, *, phase: str, is_ready: bool, ip: str, is_initialized: bool = True
    ) -> Obj:
        """What a kubelet reports of a pod whose containers run (or wait to)."""
        spec = pod["spec"]
        names = [container["name"] for container in spec["containers"]]
        waits = f"containers with unready status: [{' '.join(names)}]"
        unready = {} if is_ready else {"reason": "ContainersNotReady", "message": waits}
        missing = [container["name"] for container in spec.get("initContainers", [])]
        incomplete = f"containers with incomplete status: [{' '.join(missing)}]"
        init = {"reason": "ContainersNotInitialized", "message": incomplete}
        conditions = [
            _condition("PodReadyToStartContainers", bool(ip)),
            _condition("Initialized", is_initialized, **({} if is_initialized else init)),
            _condition("Ready", is_ready, **unready),
            _condition("ContainersReady", is_ready, **unready),
            _condition("PodScheduled", True),
        ]
        waiting = "PodInitializing" if missing else "ContainerCreating"
        status: Obj = {
            "phase": phase, "conditions": conditions, "startTime": now(),
            "hostIP": "10.0.0.1", "podIP": ip, "podIPs": [{"ip": ip}] if ip else [],
            "qosClass": pod["status"].get("qosClass", "Burstable"),
            "containerStatuses": [
                _container(container, is_ready, waiting="" if phase == "Running" else waiting)
                for container in spec["containers"]
            ],
        }  # fmt: skip
        if missing:
            status["initContainerStatuses"] = [
                _init_container(container, is_initialized) for container in spec["initContainers"]
            ]
        return status


def _is_over(pod: Obj) -> bool:
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def _condition(type: str, is_true: bool, **more: str) -> Obj:
    return {
        "type": type, "status": "True" if is_true else "False", "lastProbeTime": None,
        "lastTransitionTime": now(), **more,
    }  # fmt: skip


def _container(container: Obj, is_ready: bool, *, waiting: str = "") -> Obj:
    running = {"running": {"startedAt": now()}}
    return {
        "name": container["name"], "image": container.get("image", ""), "imageID": "",
        "ready": is_ready, "started": not waiting, "restartCount": 0, "lastState": {},
        "state": {"waiting": {"reason": waiting}} if waiting else running,
    }  # fmt: skip


def _init_container(container: Obj, is_done: bool) -> Obj:
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}
    state = {"terminated": ended} if is_done else {"running": {"startedAt": now()}}
    return {**_container(container, is_done), "started": False, "state": state}
