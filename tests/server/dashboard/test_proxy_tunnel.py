"""The dashboard proxy in front of a cluster on Kubernetes, which it finds as any user would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.providers.kuberay.api.cache import close_caches
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from tests.k8s.conftest import namespace, standin
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.head_objects import put_cluster, put_token
from tests.providers.kuberay.token_ray import TokenRay

__all__ = ["namespace", "standin"]


@pytest.fixture
def far_ray(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TokenRay]:
    """The head of RayCluster `far` in the current context."""
    path = standin.kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with TokenRay() as ray:
        put_cluster(standin, namespace, port=ray.port, name="far")
        yield ray
    close_routes()
    close_caches()


async def test_both_credentials_are_added_and_neither_comes_back(
    standin: StandIn, far_ray: TokenRay, api: Any
) -> None:
    answer = await api("dashboard/far/api/version")
    assert answer.code == 200, answer.body
    assert b"2.60.0" in answer.body
    seen = far_ray.seen[-1]
    assert seen.path == "/api/version"
    assert seen.headers["x-ray-authorization"] == "Bearer right"
    assert "authorization" not in seen.headers
    assert seen.headers["user-agent"].startswith("Mozilla")
    reported = str(answer.headers) + answer.body.decode()
    assert standin.admin_token not in reported + far_ray.reported()
    assert "right" not in reported


async def test_a_new_token_and_a_cut_line_are_mended(
    standin: StandIn, namespace: str, far_ray: TokenRay, api: Any
) -> None:
    assert (await api("dashboard/far/api/version")).code == 200
    with standin.faulty("503", path="/proxy/"):
        away = await api("dashboard/far/api/version")
    assert away.code == 503
    assert b"does not answer" in away.body
    far_ray.token = "another"
    put_token(standin, namespace, "another", name="far")
    for _ in range(50):
        await asyncio.sleep(0.1)  # The Secret is read again only now and then.
        answer = await api("dashboard/far/api/version")
        if answer.code == 200:
            break
    assert answer.code == 200
