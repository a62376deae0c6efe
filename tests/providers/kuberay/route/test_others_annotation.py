"""Another user of the namespace edits a live RayCluster, to get its token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.route.ray_address import (
    get_job_submission_client_cluster_info,
)
from llmops_kernel.providers.kuberay.route.tunnel import close_routes, open_route
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.head_objects import put_cluster
from tests.providers.kuberay.route.tunnel_fixtures import kube, token_ray
from tests.providers.kuberay.token_ray import TokenRay
from tests.waiting import until

__all__ = ["kube", "token_ray"]

EDIT = PolicyRule(("ray.io",), ("rayclusters",), ("get", "patch"))


@pytest.fixture
def listener() -> Iterator[TokenRay]:
    """The attacker's port, which records what it receives and answers as Ray does."""
    with TokenRay(token=None) as listening:
        yield listening


def as_bob(cloud: Cloud, access: dict[str, Any]) -> None:
    """Bob may edit RayClusters, but not read Secrets."""
    cloud.standin.user("bob", "bobtok", [EDIT], cloud.namespace)
    patch = {"metadata": {"annotations": {"llmops.dev/access": json.dumps(access)}}}
    with cloud.standin.client("bobtok") as bob:
        answer = bob.patch(
            f"{cloud.path}/one",
            json=patch,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.is_success, answer.text
        secret = bob.get(f"/api/v1/namespaces/{cloud.namespace}/secrets/one")
        assert secret.status_code == 403


@pytest.mark.parametrize("way", ["url", "auto"])
@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "colleague"])
@pytest.mark.usefixtures("farm")
def test_nobody_sends_the_token_where_an_annotation_says(
    cloud: Cloud, listener: TokenRay, tmp_path: Path, way: str, is_owner: bool
) -> None:
    cloud.provider.up(cloud.template())
    as_bob(cloud, {"way": way, "url": f"http://127.0.0.1:{listener.port}"})
    home = cloud.home if is_owner else tmp_path / "another home"
    provider = KubeRayProvider(home)
    full = f"standin/{cloud.namespace}/one"
    close_routes()
    if way == "auto":  # Bob's address would be the last choice: nothing else works now.
        cloud.standin.fault("deny", path="/proxy")
        with pytest.raises(ClusterUnreachableError):
            provider.connect(full)
        cloud.standin.heal()
    with JobsClient(provider.connect(full), cluster="one") as client:
        assert client.list() == []
    assert provider.get(full).is_ready
    info = get_job_submission_client_cluster_info(full)
    assert str(listener.port) not in info.address
    assert listener.seen == []


@pytest.mark.usefixtures("farm")
def test_the_address_of_the_users_own_template_counts(
    cloud: Cloud, listener: TokenRay, tmp_path: Path
) -> None:
    address = f"http://127.0.0.1:{listener.port}"
    cloud.provider.up(cloud.template())
    colleague = KubeRayProvider(tmp_path / "another home")
    close_routes()
    cloud.standin.fault("deny", path="/proxy")
    as_bob(cloud, {"way": "url", "url": "https://ray.example"})
    with pytest.raises(ClusterUnreachableError, match=r"names 'https://ray\.example'") as caught:
        colleague.connect("one")
    assert "access.url" in caught.value.remedy
    assert "your own template" in caught.value.remedy
    assert "ray.example" not in repr(_message(cloud.provider))
    own = cloud.template(access={"way": "url", "url": address})
    colleague.up(own, wait=False)
    with JobsClient(colleague.connect("one"), cluster="one") as client:
        client.version()
    assert listener.seen
    cloud.standin.heal()


def _message(provider: KubeRayProvider) -> str:
    """What the owner reads, whose own template says `auto`."""
    with pytest.raises(ClusterUnreachableError) as caught:
        provider.connect("one")
    return caught.value.message


@pytest.mark.usefixtures("farm")
def test_a_new_cluster_of_that_name_inherits_no_trust(cloud: Cloud, listener: TokenRay) -> None:
    address = f"http://127.0.0.1:{listener.port}"
    template = cloud.template(access={"way": "url", "url": address})
    cloud.provider.up(template, wait=False)
    with cloud.standin.client() as http:
        live = cloud.live()
        http.delete(f"{cloud.path}/one").raise_for_status()
    kept = ("name", "labels", "annotations")
    live["metadata"] = {key: live["metadata"][key] for key in kept}
    live.pop("status", None)
    cloud.create(live)
    secret = f"/api/v1/namespaces/{cloud.namespace}/secrets/one"
    until(lambda: cloud.live().get("status") and _is_there(cloud, secret))
    close_routes()
    connection = until(lambda: _connected(cloud))
    assert address not in connection.dashboard_url


def _is_there(cloud: Cloud, path: str) -> bool:
    with cloud.standin.client() as http:
        return http.get(path).status_code == 200


def _connected(cloud: Cloud) -> Any:
    try:
        return cloud.provider.connect("one")
    except ClusterUnreachableError:
        return None  # Its head is not up yet.


def test_the_token_goes_over_no_network_in_clear(
    standin: StandIn, namespace: str, kube: Any
) -> None:
    raycluster = put_cluster(standin, namespace, port=1)
    plain = Access(way="url", url="http://ray.example")
    with pytest.raises(ClusterUnreachableError, match="unencrypted") as caught:
        open_route(kube, raycluster, plain)
    assert "access.allow_http" in caught.value.remedy
    open_route(kube, raycluster, plain.model_copy(update={"allow_http": True}))
    open_route(kube, raycluster, Access(way="url", url="http://[::1]:8265"))
    close_routes()


@pytest.mark.parametrize("name", ["example.com/", "../secrets/other?x=", "a:80", "evil.com#", "@x"])
def test_the_name_of_a_service_is_no_other_address(
    standin: StandIn, namespace: str, kube: Any, name: str
) -> None:
    raycluster = put_cluster(standin, namespace, port=1)
    raycluster["status"]["head"]["serviceName"] = name
    for way in ("auto", "in-cluster", "service-proxy"):
        with pytest.raises(ClusterUnreachableError, match="name of its head's Service"):
            open_route(kube, raycluster, Access(way=way))
