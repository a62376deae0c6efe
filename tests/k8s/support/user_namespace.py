"""A user's namespace and folder, with an earlier run that no fault may change."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.store.store import RunStore
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.server.runs import make_run

_FIRST_FD = 900
"""No other process has a file with so high a number."""


def of_this_process(folder: Path) -> Path:
    """Return a path to a folder that is valid in this process only.

    The pods are processes of this machine: with a path that is valid for them too, they would
    write to the run's folder directly, which pods of a real cluster cannot do.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    os.close(fd)
    return Path(f"/proc/self/fd/{own}")


@dataclass
class UserNamespace:
    """The namespace of the user's kubeconfig and the user's working folder."""

    standin: StandIn
    namespace: str
    folder: Path
    ray: RayDashboard

    def template(self, name: str = "lab", **fields: Any) -> Path:
        """Write a template with one small worker, whose dashboard is `ray`; return its path."""
        group = {"name": "w", "cpus": "1", "memory": "2Gi", "replicas": 1, "max_replicas": 4}
        route = {"metadata": {"annotations": {"standin/address": self.ray.address}}}
        data = {
            "name": name,
            "provider": "kuberay",
            "image": "rayproject/ray:2.60.0",
            "head": {"cpus": "1", "memory": "2Gi"},
            "worker_groups": [group | fields.pop("group", {})],
            "raycluster": {"headGroupSpec": {"template": route}},
        }
        path = self.folder / "cluster_templates" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(data | fields))
        return path

    def login(self, token: str, *, command: list[str] | None = None) -> None:
        path = Path(os.environ["KUBECONFIG"])
        self.standin.kubeconfig(path, namespace=self.namespace, token=token, exec_command=command)

    def put(self, kind: str, name: str, *, api: str = "v1", **body: Any) -> None:
        meta = {"name": name, "namespace": self.namespace}
        self.standin.put({"apiVersion": api, "kind": kind, "metadata": meta, **body})

    def quota(self, **hard: str) -> None:
        named = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
        self.put("ResourceQuota", "team", spec={"hard": named})

    def exists(self, name: str = "lab") -> bool:
        path = f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters/{name}"
        with self.standin.client() as http:
            return http.get(path).status_code == 200

    def backdate(self, name: str, *, by_s: float) -> None:
        """Make a RayCluster older, as if that time had passed since it was created."""
        path = f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters/{name}"
        with self.standin.client() as http:
            body = http.get(path).json()
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - by_s))
        body["metadata"]["creationTimestamp"] = created
        self.standin.put(body)


class KeptRun:
    """A run of an earlier day on that cluster, which no test may change."""

    def __init__(self, *, cluster: str = "lab") -> None:
        self.store, self.run_id = RunStore(), "earlier-1"
        facts = {"created_s": time.time() - 9e4, "cluster": cluster, "provider": "kuberay"}
        make_run(self.store, self.run_id, steps=5, ended=None, **facts)
        self.before = self.look()

    def look(self) -> tuple[Any, ...]:
        events = self.store.events(self.run_id)
        return self.store.record(self.run_id), [event.model_dump() for event in events]

    def assert_whole(self) -> None:
        record, events = self.look()
        assert record == self.before[0]
        assert events[: len(self.before[1])] == self.before[1]


def user_namespace_of(
    standin: StandIn, namespace: str, ray: RayDashboard, folder: Path, monkeypatch: Any
) -> Iterator[UserNamespace]:
    kubeconfig = standin.kubeconfig(folder / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("LLMOPS_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    kept = KeptRun()
    yield UserNamespace(standin, namespace, folder, ray)
    standin.heal()
    close_caches()
    kept.assert_whole()
