"""A connection to the stand-in as its administrator, and a dashboard of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.token_ray import TokenRay


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
