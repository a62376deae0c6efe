"""A route that was taken because a better one was refused is not kept for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.tunnel import close_routes, open_route
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.head_objects import put_cluster
from tests.providers.kuberay.route.tunnel_fixtures import token_ray
from tests.providers.kuberay.token_ray import TokenRay

__all__ = ["token_ray"]
BUT_PROXY = PolicyRule(("",), ("secrets", "pods"), ("*",))
PROXY = PolicyRule(("",), ("services/proxy",), ("*",))


def test_a_refused_route_is_tried_again(
    standin: StandIn,
    namespace: str,
    token_ray: TokenRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standin.user("ida", "ida-token", [BUT_PROXY], namespace)
    path = standin.kubeconfig(tmp_path / "ida", namespace=namespace, token="ida-token")
    monkeypatch.setenv("KUBECONFIG", str(path))
    kube = Kube()
    raycluster = put_cluster(standin, namespace, port=token_ray.port)
    access = Access(url=f"http://127.0.0.1:{token_ray.port}")
    try:
        first = open_route(kube, raycluster, access, second_choice_s=0.5)
        assert "/proxy" not in first.dashboard_url
        assert open_route(kube, raycluster, access) is first
        standin.user("ida", "ida-token", [BUT_PROXY, PROXY], namespace)
        time.sleep(0.6)
        better = open_route(kube, raycluster, access)
        assert "/services/lab-head-svc:dashboard/proxy" in better.dashboard_url
        # That one is the best, and stays.
        time.sleep(0.6)
        assert open_route(kube, raycluster, access) is better
    finally:
        close_routes()
