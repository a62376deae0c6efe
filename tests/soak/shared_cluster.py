"""The Kubernetes cluster of both: one namespace, a RayCluster a user, and what happens to it.

API server, operator and kubelets are the stand-ins of `tests/k8s`; pods are simulated, so no run
is made there. What is shown is that each user's objects are changed by their user only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import yaml

from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn, shipped_rules
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.soak.user import User

NAMESPACE = "team"
_KINDS = {
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
}
JUMP_S = 7200.0
_SMALL_S = 240.0


class SharedCluster:
    """A context manager; each user gets a token, the Role that we ship, and a template."""

    def __init__(self, users: list[User]) -> None:
        self.users = users
        self.standin = StandIn()
        self.jumps = 0

    def __enter__(self) -> SharedCluster:
        self.standin.__enter__()
        # Users read the authority's certificate; the server's key is root's.
        for file in self.standin.folder.iterdir():
            file.chmod(0o600 if "server" in file.name else 0o644)
        self.standin.folder.chmod(0o711)
        self.farm = Farm(self.standin, requeue_s=2.0, grace_s=1.0).__enter__()
        self.standin.create_namespace(NAMESPACE)
        self.rays = {user.name: RayDashboard().__enter__() for user in self.users}
        self.known: dict[str, dict[str, Any]] = {user.name: {} for user in self.users}
        for user in self.users:
            self._admit(user)
        return self

    def __exit__(self, *exc: object) -> None:
        for ray in self.rays.values():
            ray.__exit__(None, None, None)
        self.farm.__exit__(None, None, None)
        self.standin.__exit__(None, None, None)

    def _admit(self, user: User) -> None:
        self.standin.user(user.name, f"{user.name}-token", shipped_rules(), NAMESPACE)
        path = user.home / "kubeconfig"
        self.standin.kubeconfig(path, namespace=NAMESPACE, token=f"{user.name}-token")
        path.chmod(0o600)
        route = {"metadata": {"annotations": {"standin/address": self.rays[user.name].address}}}
        template = {
            "name": self.name(user),
            "provider": "kuberay",
            "image": "rayproject/ray:2.60.0",
            "head": {"cpus": "1", "memory": "2Gi"},
            "worker_groups": [
                {"name": "w", "cpus": "1", "memory": "2Gi", "replicas": 1, "max_replicas": 2}
            ],
            "idle": {"suspend_after_s": 3600},
            "raycluster": {"headGroupSpec": {"template": route}},
        }
        file = user.work / "cluster_templates" / f"{self.name(user)}.yaml"
        file.write_text(yaml.safe_dump(template))
        user.own(path, file)

    @staticmethod
    def name(user: User) -> str:
        return f"of-{user.name}"

    def objects(self, user: User) -> dict[str, Any]:
        """Identity and wishes of all objects of the cluster, without their status."""
        found = {}
        for kind, path in _KINDS.items():
            answer = self._get(path.format(NAMESPACE))
            for item in answer.json()["items"]:
                meta = item["metadata"]
                text = json.dumps(
                    [meta.get("name"), meta.get("labels"), meta.get("ownerReferences")]
                )
                if self.name(user) in text:
                    wishes = {key: item.get(key) for key in ("spec", "data")}
                    labels = (meta.get("labels"), meta.get("annotations"))
                    found[f"{kind}/{meta['name']}"] = [meta["uid"], labels, wishes]
        return found

    def _get(self, path: str) -> httpx.Response:
        """Ask as an administrator; the other user may just have made the server go away."""
        deadline_s = time.monotonic() + 30
        while True:
            try:
                return self.farm.http.get(path)
            except httpx.TransportError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)

    def state(self, user: User) -> str:
        path = f"{_KINDS['RayCluster'].format(NAMESPACE)}/{self.name(user)}"
        answer = self._get(path)
        if answer.status_code != 200:
            return "absent"
        return "suspended" if answer.json()["spec"].get("suspend") else "up"

    def check(self, user: User) -> None:
        """Nothing has changed since this user's own last action."""
        now, before = self.objects(user), self.known[user.name]
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                kinds = [name for name, there in (("before", before), ("now", now)) if key in there]
                user.broke(f"{key} changed without its user (there: {', '.join(kinds)})")
        self.known[user.name] = now


def cluster_change(user: User, shared: SharedCluster) -> None:
    """Create, suspend, resume or delete the own cluster, by what it is now."""
    name = shared.name(user)
    state = shared.state(user)
    if state == "absent":
        _twice(user, "up", name)
    elif state == "suspended":
        _twice(user, "resume", name, "--yes")
    else:
        verb = user.random.choice(["suspend", "delete"])
        # Without a route to Ray its history cannot be read; --force is the user's answer to that.
        _twice(user, verb, name, "--yes", "--force")
    wanted = {"absent": "up", "suspended": "up"}.get(state)
    if wanted and shared.state(user) != wanted:
        user.broke(f"{name} is {shared.state(user)} after `up` or `resume`")


def _twice(user: User, *words: str) -> None:
    """The other user may just have made the API server go away: then once more."""
    if user.llmops(*words, may_fail=True).returncode:
        user.llmops(*words)


def guard(user: User, shared: SharedCluster) -> None:
    """An idle guard whose time has not come does nothing, whatever the API server's clock."""
    if shared.state(user) == "up":
        user.llmops("cluster", "guard", shared.name(user), "--once", may_fail=True)
        if shared.state(user) != "up":
            user.broke(f"the guard ended {shared.name(user)}, in use less than an hour ago")


def clock_jump(user: User, shared: SharedCluster) -> None:
    """The API server's clock is two hours off, either way, while a guard looks."""
    shared.jumps += 1
    seconds = user.random.choice([-JUMP_S, -_SMALL_S, _SMALL_S, JUMP_S])
    shared.standin.fault("clock", seconds=seconds)
    try:
        guard(user, shared)
        user.llmops("ls", may_fail=True)
    finally:
        shared.standin.heal()


def server_away(user: User, shared: SharedCluster) -> None:
    """The API server is gone for two seconds; runs of local clusters do not notice."""
    shared.standin.fault("away", seconds=2)
    user.llmops("ls", may_fail=True)
    time.sleep(1)


def stranger(user: User, shared: SharedCluster) -> None:
    """Try at the other's runs, files and local cluster; all is refused."""
    other = next(one for one in shared.users if one is not user)
    for ref in list(other.ids.values())[-1:]:
        for words in (("show", ref), ("stop", ref), ("rm", ref, "--yes"), ("logs", ref)):
            if user.llmops(*words, may_fail=True).returncode == 0:
                user.broke(f"`llmops {' '.join(words)}` worked on a run of {other.name}")
    seen = user.start("tests.soak.trespass", str(other.home), str(other.uid)).communicate()[0]
    for line in seen.splitlines():
        user.broke(f"{user.name} can read {line} of {other.name}")


SHARED_ACTIONS: dict[str, tuple[int, Callable[[User, SharedCluster], None]]] = {
    "cluster": (6, cluster_change),
    "guard": (2, guard),
    "clock jump": (5, clock_jump),
    "server away": (3, server_away),
    "stranger": (3, stranger),
}
