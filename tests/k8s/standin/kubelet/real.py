"""Kubelets that run the Ray container of each pod as real processes on this machine."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import aiohttp
import psutil

from tests.k8s.standin.kubelet import in_cluster, survivors
from tests.k8s.standin.kubelet.pod_folder import MARK, MountError, PodFolder
from tests.k8s.standin.kubelet.simulated import Kubelet
from tests.k8s.standin.kubelet.survivors import Container, Survivor
from tests.k8s.standin.nodes.scheduler import pod_path
from tests.k8s.standin.operator.names import AUTOSCALER
from tests.k8s.standin.operator.status import condition
from tests.k8s.standin.runtime.client import Api, ApiError, Mirror, Obj
from tests.k8s.standin.runtime.events import now

PERIOD_S = 0.5
"""Between two probes; the pods' own periods and delays are made for slower things than a test."""
Process = subprocess.Popen[bytes] | Container
_STARTING = -10
"""Niceness of a container until it is ready: nine times the share of one with 0."""


class RealKubelet(Kubelet):
    """One process group for the first container of a pod, and one for Ray's autoscaler.

    All other containers are only reported as running.
    """

    has_processes = True

    def __init__(self, api: Api, *, pods: Mirror, folder: Path, grace_s: float):
        super().__init__(api, pods=pods)
        self._folder, self._grace_s = folder, grace_s
        self._folders: dict[str, PodFolder] = {}
        self._heads: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
        self._notes = survivors.find(folder)
        """Of each pod; at first those of a kubelet that was killed."""
        self._heads |= {
            one.scope: (one.ip, one.ports) for one in self._notes.values() if one.is_head
        }
        self._numbers = itertools.count(2 + max(map(_number, self._notes.values()), default=0))
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))

    async def run(self) -> None:
        try:
            await self.pods.synced.wait()
            for uid in self._notes.keys() - self._tasks.keys() - self._ending.keys():
                await self._forget(uid)
            await asyncio.Event().wait()
        finally:
            tasks = [*self._tasks.values(), *self._ending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._http.close()
            for folder in list(self._folders.values()):
                await stop(folder.uid, grace_s=0)
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _let_go(self, pod: Obj, task: asyncio.Task[None] | None) -> None:
        if task is None:
            await self._forget(pod["metadata"]["uid"])
        await super()._let_go(pod, task)

    async def _forget(self, uid: str) -> None:
        """A pod of a kubelet that was killed, which was deleted meanwhile."""
        if uid in self._notes:
            await stop(uid, grace_s=self._grace_s)
            del self._notes[uid]
            shutil.rmtree(self._folder / uid[:6], ignore_errors=True)

    async def run_pod(self, pod: Obj) -> None:
        folder = self._make_folder(pod)
        container = self._notes[folder.uid].container()
        try:
            await self.api.merge(pod_path(pod), {"metadata": {"annotations": folder.annotations}})
            await self._mount(folder)
            if container is None:
                await stop(folder.uid, grace_s=0)
                await self._init(folder)
            await self._keep_running(folder, container)
        finally:
            # Its cancelled task must still see its processes gone.
            await asyncio.shield(self._end(folder))

    def _make_folder(self, pod: Obj) -> PodFolder:
        labels = pod["metadata"].get("labels", {})
        is_head = labels.get("ray.io/node-type") == "head"
        scope = (pod["metadata"]["namespace"], labels.get("ray.io/cluster", ""))
        note = self._notes.get(pod["metadata"]["uid"])
        # Workers find a new head by the name of its service; here that is always one address.
        ip, ports = self._heads.get(scope, ("", None)) if is_head else ("", None)
        if note is not None:
            ip, ports = note.ip, note.ports
        if not ip:
            number = next(self._numbers)
            ip = f"127.77.{number // 250}.{number % 250 + 1}"
        folder = PodFolder(self._folder, pod, ip=ip, ports=ports)
        if is_head:
            self._heads[scope] = (ip, folder.ports)
        self._folders[folder.uid] = folder
        if note is None:
            note = Survivor(folder.uid, *scope, is_head=is_head, ip=ip, ports=folder.ports)
            self._notes[folder.uid] = note
            note.write(folder.path)
        return folder

    async def _end(self, folder: PodFolder) -> None:
        await stop(folder.uid, grace_s=self._grace_s)
        self._folders.pop(folder.uid, None)
        self._notes.pop(folder.uid, None)
        folder.remove()

    async def _mount(self, folder: PodFolder) -> None:
        while True:
            try:
                await folder.mount(self.api)
                return
            except MountError as error:
                text = str(error)
                await self.events.event(folder.pod, "FailedMount", text, type="Warning")
                status = self.status(folder.pod, phase="Pending", is_ready=False, ip="")
                await self.write(folder.pod, status)
                await asyncio.sleep(1)

    async def _init(self, folder: PodFolder) -> None:
        pod = folder.pod
        for container in pod["spec"].get("initContainers") or []:
            status = self.status(
                pod, phase="Pending", is_ready=False, ip=folder.ip, is_initialized=False
            )
            await self.write(pod, status)
            if container["name"] == "wait-gcs-ready":
                # Asked here: the container's own loop starts a whole Ray for each question.
                await self._wait_for_head(folder)
                continue
            process = await self._start(folder, container)
            while process.poll() is None:
                await asyncio.sleep(0.1)

    async def _wait_for_head(self, folder: PodFolder) -> None:
        while True:
            head = self._head_of(folder.pod)
            if head is not None:
                host, port = head.address(8265)
                with suppress(aiohttp.ClientError, TimeoutError):
                    url = f"http://{host}:{port}/api/gcs_healthz"
                    async with self._http.get(url) as answer:
                        if answer.status == 200:
                            return
            await asyncio.sleep(PERIOD_S)

    def _head_of(self, pod: Obj) -> PodFolder | None:
        name = pod["metadata"].get("labels", {}).get("ray.io/cluster")
        for folder in self._folders.values():
            meta = folder.pod["metadata"]
            labels = meta.get("labels", {})
            is_same = (meta["namespace"], labels.get("ray.io/cluster")) == (
                pod["metadata"]["namespace"], name,
            )  # fmt: skip
            if is_same and labels.get("ray.io/node-type") == "head":
                return folder
        return None

    async def _start(self, folder: PodFolder, container: Obj) -> subprocess.Popen[bytes]:
        head = self._head_of(folder.pod)
        address = f"{head.ip}:{head.ports['port']}" if head else ""
        while True:
            try:
                env = await folder.environment(self.api, container, head=address)
                break
            except MountError as error:
                text = f"Error: {error}"
                await self.events.event(folder.pod, "Failed", text, type="Warning")
                await self._write_waiting(folder.pod, container["name"], error.reason, str(error))
                await asyncio.sleep(1)
        line = [*(container.get("command") or []), *(container.get("args") or [])]
        words = [folder.rewritten(folder.expanded(word, env)) for word in line]
        words = [self._addressed(folder, word, address) for word in words]
        if container["name"] == AUTOSCALER:
            env |= await in_cluster.credentials(self.api, folder)
            words = in_cluster.mounted(folder, words)
        with folder.log_of(container).open("ab") as output:
            process = subprocess.Popen(
                words or ["sleep", "infinity"], env=env, cwd=folder.path / "tmp",
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        _prefer(process.pid, _STARTING)
        return process

    def _addressed(self, folder: PodFolder, text: str, head: str) -> str:
        """Names of services as the addresses that they would resolve to."""
        cluster = folder.pod["metadata"].get("labels", {}).get("ray.io/cluster", "")
        service = f"{cluster}-head-svc.{folder.pod['metadata']['namespace']}.svc.cluster.local"
        text = text.replace(f"{service}:6379", head) if head else text
        return text.replace(service, head.rpartition(":")[0]) if head else text

    async def _keep_running(self, folder: PodFolder, process: Process | None) -> None:
        """Start the container again and again, as its restart policy says; `process` runs."""
        note, last = self._notes[folder.uid], {}
        back_off_s = 1.0
        while True:
            if process is None:
                process = await self._start_anew(folder, note)
            code = await self._watch(folder, process, last)
            process = None
            ended = {"exitCode": code, "reason": "Error" if code else "Completed",
                     "startedAt": now(), "finishedAt": now()}  # fmt: skip
            last = {"terminated": ended}
            await stop(folder.uid, grace_s=0)
            if folder.pod["spec"].get("restartPolicy", "Always") == "Never":
                await self._write_over(folder, ended)
                return
            note.restarts += 1
            await self._write_back_off(folder, note.restarts, last, back_off_s)
            await asyncio.sleep(back_off_s)
            back_off_s = min(2 * back_off_s, 60)

    async def _start_anew(self, folder: PodFolder, note: Survivor) -> Process:
        container = folder.pod["spec"]["containers"][0]
        process = await self._start(folder, container)
        note.started(process.pid)
        note.write(folder.path)
        for other in folder.pod["spec"]["containers"][1:]:
            if other["name"] == AUTOSCALER:
                await self._start(folder, other)
        await self.events.event(folder.pod, "Started", f"Started container {container['name']}")
        await self._after_start(folder, container)
        return process

    async def _after_start(self, folder: PodFolder, container: Obj) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart", {}).get("exec")
        if hook is None:
            return
        head = self._head_of(folder.pod)
        address = f"{head.ip}:{head.ports['port']}" if head else ""
        env = await folder.environment(self.api, container, head=address)
        words = [folder.rewritten(word) for word in hook["command"]]
        process = await asyncio.create_subprocess_exec(
            *words, env=env, cwd=folder.path / "tmp", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        output, _ = await process.communicate()
        with folder.log.open("ab") as log:
            log.write(output)
        if process.returncode:
            text = f"PostStartHook failed: exit status {process.returncode}: {output.decode()}"
            await self.events.event(folder.pod, "FailedPostStartHook", text, type="Warning")
            # A container whose hook fails is killed, and started again by its policy.
            await stop(folder.uid, grace_s=0)

    async def _watch(self, folder: PodFolder, process: Process, last: Obj) -> int:
        """Report readiness until the process has ended; its exit code."""
        restarts = self._notes[folder.uid].restarts
        # What a kubelet that was killed has reported stands, until it is otherwise.
        reported = _reported(folder.pod) if isinstance(process, Container) else None
        while (code := process.poll()) is None:
            is_ready = await self._is_ready(folder)
            if is_ready is not reported:
                reported = is_ready
                if is_ready:
                    _prefer(process.pid, 0)
                status = self.status(folder.pod, phase="Running", is_ready=is_ready, ip=folder.ip)
                status["containerStatuses"][0] |= {"restartCount": restarts, "lastState": last}
                await self.write(folder.pod, status)
            await asyncio.sleep(PERIOD_S)
        return code if code >= 0 else 128 - code

    async def _is_ready(self, folder: PodFolder) -> bool:
        probe = folder.pod["spec"]["containers"][0].get("readinessProbe") or {}
        if "httpGet" not in probe:
            return True
        host, port = folder.address(int(probe["httpGet"]["port"]))
        url = f"http://{host}:{port}{probe['httpGet'].get('path', '/')}"
        try:
            async with self._http.get(url) as answer:
                return 200 <= answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _write_back_off(
        self, folder: PodFolder, restarts: int, last: Obj, back_off_s: float
    ) -> None:
        pod, name = folder.pod, folder.pod["spec"]["containers"][0]["name"]
        text = (
            f"back-off {back_off_s:.0f}s restarting failed container={name}"
            f" pod={pod['metadata']['name']}_{pod['metadata']['namespace']}"
            f"({pod['metadata']['uid']})"
        )
        await self.events.event(pod, "BackOff", text, type="Warning")
        status = self.status(pod, phase="Running", is_ready=False, ip=folder.ip)
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
        status["containerStatuses"][0] |= {
            "restartCount": restarts, "lastState": last, "state": waiting, "started": False,
        }  # fmt: skip
        await self.write(pod, status)

    async def _write_over(self, folder: PodFolder, ended: Obj) -> None:
        phase = "Failed" if ended["exitCode"] else "Succeeded"
        status = self.status(folder.pod, phase=phase, is_ready=False, ip=folder.ip)
        status["containerStatuses"][0]["state"] = {"terminated": ended}
        with suppress(ApiError):
            await self.write(folder.pod, status)


def _number(note: Survivor) -> int:
    """Of its address, 127.77.N / 250.N % 250 + 1."""
    *_, high, low = map(int, note.ip.split("."))
    return 250 * high + low - 1


def _reported(pod: Obj) -> bool | None:
    ready = condition(pod["status"], "Ready").get("status")
    return None if pod["status"].get("phase") != "Running" else ready == "True"


def marked(uid: str) -> list[psutil.Process]:
    """All processes of a pod, also those whose parent is gone."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == uid:
                found.append(process)
    return found


def kill(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


async def stop(uid: str, *, grace_s: float) -> None:
    """SIGTERM, some time for the first processes of the containers, SIGKILL for what is left.

    The kernel ends a container with its first process: an agent of Ray that outlives its raylet
    has no grace.
    """
    processes = marked(uid)
    first = _without_parents(processes)
    if grace_s:
        kill(processes, signal.SIGTERM)
    deadline_s = asyncio.get_running_loop().time() + grace_s
    while first and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(0.1)
        first = [process for process in first if _lives(process)]
    while left := [process for process in marked(uid) if _lives(process)]:
        kill(left, signal.SIGKILL)
        await asyncio.sleep(0.05)


def _without_parents(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those whose parent is none of them."""
    pids = {process.pid for process in processes}
    first = []
    for process in processes:
        with suppress(psutil.Error):
            if process.ppid() not in pids:
                first.append(process)
    return first


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _prefer(pid: int, niceness: int) -> None:
    """Set a container's share of the cores: a raylet ends if its agents need over 15 s to start.

    `niceness` is added to that of the kubelet. Other tests run beside it. Only root may;
    `autogroup` counts where sessions have equal shares.
    """
    niceness = max(-20, min(19, os.nice(0) + niceness))
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
    with suppress(psutil.Error):
        for process in (one := psutil.Process(pid), *one.children(recursive=True)):
            process.nice(niceness)
