"""A connection to the stand-in as its administrator, and a dashboard of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.clusters.kuberay.kube import Kube
from llmops_kernel.clusters.kuberay.tunnel import close_routes
from tests.clusters.kuberay.token_ray import TokenRay
from tests.k8s.standin import StandIn


@pytest.fixture
def kube(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kube]:
    path = standin.kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(path))
    made = Kube()
    yield made
    close_routes()
    made.close()


@pytest.fixture
def token_ray() -> Iterator[TokenRay]:
    with TokenRay() as ray:
        yield ray
