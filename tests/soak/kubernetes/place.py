"""Where the soak takes place: a Kubernetes of stand-ins with real Ray in its pods, and a user."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
import yaml

from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import ROOT, StandIn, shipped_rules
from tests.k8s.support.user_namespace import of_this_process
from tests.soak.kubernetes.chaos import Part
from tests.tiny_training import slow_hooks, write_training

NAMESPACE, CLUSTER, USER, TOKEN = "team", "kind-cpu", "ann", "ann-token"
RAYCLUSTERS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_RUNS_PER_WORKER = 2
_BACK_S = 60.0


class Place:
    """A context manager. Pods do not see the user's home: it has a path of this process only."""

    def __init__(self, *, num_runs: int) -> None:
        self._num_runs = num_runs
        self._workers = -(-num_runs // _RUNS_PER_WORKER)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="ll-c-"))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.standin = stack.enter_context(StandIn(has_disk=True))
            nodes = Farm(self.standin, mode="real", grace_s=1, parts="kubelet")
            self.nodes = stack.enter_context(nodes)
            control = Farm(
                self.standin, parts="operator,scheduler,quota", requeue_s=2.0, default_node=False
            )
            self.control = stack.enter_context(control)
            self._user()
            self._files()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _user(self) -> None:
        """One with the rules that we ship, whom a starting API server refuses."""
        self.standin.create_namespace(NAMESPACE)
        self.standin.user(USER, TOKEN, shipped_rules(), NAMESPACE)
        kubeconfig = self.folder / "kubeconfig"
        self.standin.kubeconfig(kubeconfig, namespace=NAMESPACE, token=TOKEN)
        os.environ["KUBECONFIG"] = str(kubeconfig)

    def _files(self) -> None:
        templates = self.folder / "cluster_templates"
        templates.mkdir()
        template = yaml.safe_load((ROOT / "cluster_templates" / f"{CLUSTER}.yaml").read_text())
        template["worker_groups"][0]["replicas"] = self._workers
        (templates / f"{CLUSTER}.yaml").write_text(yaml.safe_dump(template))
        self.configs = [self._workspace(number) for number in range(self._num_runs)]
        (self.folder / "home").mkdir()
        self.home = self.folder / "home"
        """As other clients of this user see it."""
        os.environ["LLMOPS_HOME"] = str(of_this_process(self.folder) / "home")
        os.chdir(self.folder)

    def _workspace(self, number: int) -> Path:
        """Return the config in a workspace of its own, for the runs that follow one another.

        Pods of the stand-in have Ray's session folder together, and the agent of each new pod
        unpacks a package anew over the folder of the same name (`working_dir.py`, Ray 2.60): a
        driver of another run, which has just started there, would be without a working directory.
        """
        return write_training(
            self.folder / f"workspace-{number}",
            "chaos",
            hooks=f"# Runs of thread {number}\n{slow_hooks(0.8)}",
            training={"max_steps": 12},
            evaluation={"at_end": False},
        )

    @property
    def parts(self) -> dict[str, Part]:
        return {
            "API server": Part(self.standin.kill, self._start_api_server),
            "operator": Part(self.control.kill_operator, self.control.start_operator),
            "kubelets": Part(self.nodes.kill_operator, self.nodes.start_operator),
        }

    def _start_api_server(self) -> None:
        """Returns when it no longer refuses the user."""
        self.standin.start()
        deadline_s = time.monotonic() + _BACK_S
        with self.standin.client(TOKEN) as user:
            while user.get(RAYCLUSTERS).status_code != 200:
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"it refuses {USER} for {_BACK_S:.0f} s")
                time.sleep(0.05)

    def get(self, path: str) -> dict[str, Any]:
        """As an administrator, over a connection of its own."""
        with self.standin.client() as http:
            answer: httpx.Response = http.get(path)
            answer.raise_for_status()
            return dict(answer.json())

    def pods(self) -> dict[str, tuple[str, int]]:
        """Uid and restarts by name: nothing that is killed here may end a pod."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or []),
            )
            for pod in self.get(PODS)["items"]
        }

    def processes(self) -> list[psutil.Process]:
        return self.nodes.processes()
