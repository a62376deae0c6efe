from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from tests.k8s.conftest import namespace, standin
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.ray_dashboard import RayDashboard

__all__ = ["namespace", "standin"]


@dataclass
class Cloud:
    """A namespace of the stand-in, as a user with a kubeconfig sees it."""

    standin: StandIn
    namespace: str
    home: Path
    kubeconfig: Path
    ray: RayDashboard
    provider: KubeRayProvider

    def template(self, name: str = "one", **fields: Any) -> KubeRayTemplate:
        """Two small workers; what the head's dashboard would answer comes from `ray`."""
        data: dict[str, Any] = {
            "name": name,
            "image": "rayproject/ray:2.60.0",
            "head": {"cpus": "1", "memory": "2Gi"},
            "worker_groups": [
                {"name": "w", "cpus": "1", "memory": "2Gi", "replicas": 2, "max_replicas": 4}
            ],
            "raycluster": {
                "headGroupSpec": {"template": {"metadata": {"annotations": self.route}}}
            },
        }
        return KubeRayTemplate.model_validate({**data, **fields})

    @property
    def route(self) -> dict[str, str]:
        return {"standin/address": self.ray.address}

    @property
    def path(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters"

    def live(self, name: str = "one") -> dict[str, Any]:
        with self.standin.client() as http:
            answer = http.get(f"{self.path}/{name}")
        return answer.json()

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """As kubectl or a pipeline would."""
        with self.standin.client() as http:
            answer = http.post(f"{self.path}?fieldManager=kubectl-create", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def patch(self, name: str, patch: dict[str, Any], *, manager: str) -> None:
        with self.standin.client() as http:
            answer = http.patch(
                f"{self.path}/{name}?fieldManager={manager}",
                json=patch,
                headers={"Content-Type": "application/merge-patch+json"},
            )
        assert answer.is_success, answer.text

    def login(self, token: str) -> None:
        """From now on as somebody else."""
        self.standin.kubeconfig(self.kubeconfig, namespace=self.namespace, token=token)


@pytest.fixture
def ray() -> Iterator[RayDashboard]:
    with RayDashboard() as answering:
        yield answering


@pytest.fixture
def cloud(
    standin: StandIn,
    namespace: str,
    ray: RayDashboard,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cloud]:
    path = standin.kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(path))
    monkeypatch.setitem(os.environ, "LLMOPS_HOME", str(tmp_path / "home"))
    home = tmp_path / "home"
    yield Cloud(standin, namespace, home, path, ray, KubeRayProvider(home))
    close_caches()


@pytest.fixture(scope="module")
def farm(standin: StandIn) -> Iterator[Farm]:
    """Operator, scheduler and kubelets whose pods are ready at once."""
    with Farm(standin, mode="simulated", ready_after_s=0.2, requeue_s=0.2) as running:
        yield running
