"""Nodes, operator and kubelets beside the stand-in of the API server, as one subprocess."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import psutil

from tests.k8s.standin.farm_main import READY
from tests.k8s.standin.kubelet.pod_folder import MARK
from tests.k8s.standin.kubelet.simulated import ORDER
from tests.k8s.standin.kueue import workloads as kueue

ROOT = Path(__file__).parents[3]
DEFAULT_PARTS = "operator,scheduler,kubelet,quota"


class ApiServer(Protocol):
    """What is needed of `tests.k8s.standin.process.StandIn`."""

    url: str
    ca_file: Any
    admin_token: str

    def client(self) -> Any: ...
    def put(self, obj: dict[str, Any]) -> Any: ...
    def install_crd(self, crd: Any) -> Any: ...


class Farm:
    """`with Farm(standin, mode="real") as farm:`; every process is gone at its end.

    Without `add_node` before the start there is one big node without GPUs. `requeue_s` is the
    operator's pause between two looks (KubeRay: 2 s). `ready_after_s` is how long a simulated
    pod takes. `elastic_jobs` is Kueue's feature gate ElasticJobsViaWorkloadSlices.
    """

    def __init__(
        self,
        standin: ApiServer,
        *,
        mode: str = "simulated",
        requeue_s: float = 0.5,
        ready_after_s: float = 0.0,
        grace_s: float = 3.0,
        with_kueue: bool = False,
        elastic_jobs: bool = True,
        parts: str = DEFAULT_PARTS,
        default_node: bool = True,
    ):
        self._standin, self._mode = standin, mode
        self._options = ["--requeue", str(requeue_s), "--delay", str(ready_after_s)]
        self._options += ["--grace", str(grace_s)]
        self._options += [] if elastic_jobs else ["--no-elastic-jobs"]
        self._parts = f"{parts},kueue" if with_kueue else parts
        self._default_node = default_node
        self.nodes: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="ll-f-"))
        self.log = self.folder / "operator.log"
        self.http = self._standin.client()
        if "kueue" in self._parts:
            for crd in kueue.crds():
                self._standin.install_crd(crd)
        if self._default_node and not self.nodes:
            self.add_node("standin-node", cpu="1000", memory="10Ti", pods=5000)
        try:
            self.start_operator()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop_operator()
        self._sweep()
        for name in self.nodes:
            with suppress(Exception):
                self.http.delete(f"/api/v1/nodes/{name}")
        self.http.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_operator(self) -> None:
        """Operator, scheduler and kubelets; they take up what is there."""
        assert self._process is None
        line = [
            sys.executable, "-m", "tests.k8s.standin.farm_main", "--server", self._standin.url,
            "--ca", str(self._standin.ca_file), "--token", self._standin.admin_token,
            "--mode", self._mode, "--parts", self._parts,
            "--folder", str(self.folder / "n"), *self._options,
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                line, cwd=ROOT, stdin=subprocess.PIPE, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        count = self.log.read_text().count(READY)
        deadline_s = time.monotonic() + 60
        while self.log.read_text().count(READY) <= count:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the operator did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def stop_operator(self) -> None:
        """Operator, scheduler and kubelets end; with them the pods' processes."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill_operator(self) -> None:
        """SIGKILL for operator, scheduler and kubelets; containers run on, as on real nodes.

        `start_operator` takes them up again.
        """
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.kill()
        process.wait()
        process.stdin.close()

    def processes(self) -> list[psutil.Process]:
        """Of the pods of this farm."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                env = process.environ()
                is_ours = MARK in env and str(self.folder) in env.get("HOME", "")
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _sweep(self) -> None:
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def add_node(
        self,
        name: str,
        *,
        cpu: str = "8",
        memory: str = "32Gi",
        gpu: int = 0,
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: tuple[str, ...] = (),
        resources: Mapping[str, str] | None = None,
    ) -> None:
        """A node that is ready; taints as kubectl writes them: `key=value:NoSchedule`."""
        allocatable = {
            "cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "20Ti",
            **({"nvidia.com/gpu": str(gpu)} if gpu else {}), **(resources or {}),
        }  # fmt: skip
        self._standin.put({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                # Real processes take a while to end; their pods stay as long.
                "annotations": {"standin/graceful": "true"} if self._mode == "real" else {},
                "labels": {
                    "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {}),
                },
            },
            "spec": {"taints": [_taint(text) for text in taints]} if taints else {},
            "status": {
                "allocatable": allocatable, "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                                "message": "kubelet is posting ready status"}],
            },
        })  # fmt: skip
        self.nodes.append(name)

    def kill_pod(self, name: str, *, namespace: str = "default") -> None:
        """Its processes are killed hard and it is Failed, as when its node evicts it."""
        answer = self.http.patch(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            json={"metadata": {"annotations": {ORDER: "fail"}}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        answer.raise_for_status()

    def report(self) -> str:
        """For a failed test: what the operator and all pods said last."""
        answer = self.http.get("/api/v1/pods")
        parts = [self.log.read_text()[-2000:]]
        for pod in answer.json()["items"]:
            states = [status["state"] for status in pod["status"].get("containerStatuses") or []]
            head = f"{pod['metadata']['name']}: {pod['status'].get('phase')} {states}"
            parts.append(f"{head}\n{self.tail(pod, 1500)}")
        return "\n\n".join(parts)

    def tail(self, pod: dict[str, Any], num_chars: int = 3000) -> str:
        """The end of a real pod's log."""
        file = Path(pod["metadata"].get("annotations", {}).get("standin/log", "/nowhere"))
        return file.read_text(errors="replace")[-num_chars:] if file.exists() else ""

    def pods(self, namespace: str = "default", cluster: str = "") -> list[dict[str, Any]]:
        params = {"labelSelector": f"ray.io/cluster={cluster}"} if cluster else {}
        answer = self.http.get(f"/api/v1/namespaces/{namespace}/pods", params=params)
        answer.raise_for_status()
        return list(answer.json()["items"])


def _taint(text: str) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
