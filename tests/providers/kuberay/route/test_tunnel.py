"""The ways to a dashboard: which is taken, what goes along on it, and how it mends itself."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.errors import ClusterUnreachableError, WorkspaceError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.upload import RAY_LIMIT_BYTES
from llmops_kernel.providers.dashboard import Dashboard, open_async_http, open_http
from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.service_proxy import RayToken, RouteAuth, is_inside
from llmops_kernel.providers.kuberay.route.tunnel import Target, close_routes, open_route
from llmops_kernel.providers.protocol import Route
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.head_objects import drop_head, put_cluster, put_head, put_token
from tests.providers.kuberay.route.tunnel_fixtures import kube, token_ray
from tests.providers.kuberay.token_ray import TokenRay

__all__ = ["kube", "token_ray"]

PROXY = Access(way="service-proxy")


def test_each_gets_its_own_credentials_and_nobody_the_others(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port))
    assert f"/namespaces/{namespace}/services/lab-head-svc:dashboard/proxy" in (
        connection.dashboard_url
    )
    assert isinstance(connection.route, Route)
    with JobsClient(connection, cluster="lab") as client:
        assert client.version()["ray_version"] == "2.60.0"
        assert client.get("x") is None
    assert [one.path for one in token_ray.seen[-2:]] == ["/api/version", "/api/jobs/x"]
    assert token_ray.seen[-1].headers["x-ray-authorization"] == "Bearer right"
    assert standin.admin_token not in token_ray.reported()
    with Dashboard(connection) as dashboard:
        assert dashboard.session_name() == "s"
    for text in (repr(connection), repr(connection.route), repr(client)):
        assert "right" not in text
        assert standin.admin_token not in text


def test_paths_with_slashes_and_queries_keep_their_form(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port), PROXY)
    with open_http(connection) as http:
        for path in ("/api/jobs/", "/nodes?view=summary", "/api/v0/logs/file?filename=a%2Fb"):
            http.get(path)
    assert [one.path for one in token_ray.seen] == [
        "/api/jobs/",
        "/nodes?view=summary",
        "/api/v0/logs/file?filename=a%2Fb",
    ]


def test_kubernetes_credentials_go_to_its_own_server_alone(token_ray: TokenRay) -> None:
    class Gate(httpx.Auth):
        def auth_flow(self, request):
            request.headers["Authorization"] = "Bearer of-kubernetes"
            yield request

    auth = RouteAuth(Gate(), gate_url="https://api.example:6443", token=None)
    with httpx.Client(auth=auth, trust_env=False) as http:
        http.get(f"http://127.0.0.1:{token_ray.port}/api/version")
    assert "of-kubernetes" not in token_ray.reported()


def test_tokens_that_nobody_gives_out_leave_asyncio_its_threads() -> None:
    given = threading.Event()

    class Hanging(RayToken):
        def __init__(self) -> None:
            """Without a Secret."""

        def value(self) -> str:
            given.wait(60)
            return "late"

    async def ask() -> float:
        auth = RouteAuth(None, gate_url="https://127.0.0.1:1", token=Hanging())
        flows = [auth.async_auth_flow(httpx.Request("GET", "http://x/")) for _ in range(100)]
        waiting = [asyncio.ensure_future(anext(flow)) for flow in flows]
        await asyncio.sleep(0.2)
        began_s = time.monotonic()
        try:
            await asyncio.wait_for(asyncio.to_thread(time.monotonic), 20)
            return time.monotonic() - began_s
        finally:
            given.set()
            assert {sent.url.host for sent in await asyncio.gather(*waiting)} == {"x"}

    assert asyncio.run(ask()) < 10


@pytest.mark.parametrize("way", ["service-proxy", "url"])
def test_a_head_recreated_has_a_new_token_and_nobody_notices(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay, way: str
) -> None:
    access = Access(way=way, url=f"http://127.0.0.1:{token_ray.port}")
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port), access)
    with JobsClient(connection) as client:
        client.version()
        token_ray.token = "another"
        put_token(standin, namespace, "another")
        time.sleep(2.1)  # The Secret is read again only now and then.
        assert client.version()["session_name"] == "s"
        token_ray.seen.clear()
        client.version()
        assert [one.headers["x-ray-authorization"] for one in token_ray.seen] == ["Bearer another"]


def test_the_same_in_asyncio(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port), PROXY)

    async def ask() -> int:
        async with open_async_http(connection) as http:
            return (await http.get("/api/version")).status_code

    assert asyncio.run(ask()) == 200
    token_ray.token = "another"
    put_token(standin, namespace, "another")
    time.sleep(2.1)
    assert asyncio.run(ask()) == 200


def test_a_wrong_token_is_reported_once_the_secret_has_no_better(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port), PROXY)
    token_ray.token = "nobody knows"
    with (
        JobsClient(connection, cluster="lab") as client,
        pytest.raises(ClusterUnreachableError, match="rejected the token"),
    ):
        client.version()


def test_expired_kubernetes_credentials_are_renewed(
    standin: StandIn,
    namespace: str,
    token_ray: TokenRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token_file = tmp_path / "token"
    script = (
        "import json, sys; print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': {'token': open(sys.argv[1]).read()}}))"
    )
    command = [sys.executable, "-c", script, str(token_file)]
    rules = [PolicyRule(("",), ("*",), ("*",))]
    for token in ("morning", "evening"):
        standin.user("ann", token, rules)
    token_file.write_text("morning")
    path = standin.kubeconfig(tmp_path / "kc", namespace=namespace, exec_command=command)
    monkeypatch.setenv("KUBECONFIG", str(path))
    kube = Kube()
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port))
    with JobsClient(connection) as client:
        client.version()
        token_file.write_text("evening")
        standin.fault("expire", token="morning")
        assert client.version()["session_name"] == "s"
    close_routes()


def test_a_service_that_is_gone_says_nothing_of_the_job(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port), PROXY)
    with standin.client() as api:
        api.delete(f"/api/v1/namespaces/{namespace}/services/lab-head-svc").raise_for_status()
    with (
        JobsClient(connection, cluster="lab") as client,
        pytest.raises(ClusterUnreachableError, match=r"404.*lab-head-svc") as caught,
    ):
        client.get("x")
    assert "service proxy of context standin" in caught.value.message


def test_a_closed_service_proxy_leads_to_the_url(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `kubectl port-forward` makes one."""
    rules = [PolicyRule(("",), ("pods", "secrets"), ("get", "list", "create"))]
    standin.user("bob", "bobtok", rules, namespace)
    path = standin.kubeconfig(tmp_path / "kc", namespace=namespace, token="bobtok")
    monkeypatch.setenv("KUBECONFIG", str(path))
    with TokenRay() as ray:
        raycluster = put_cluster(standin, namespace, port=ray.port)
        kube = Kube()
        access = Access(url=f"http://127.0.0.1:{ray.port}")
        connection = open_route(kube, raycluster, access)
        assert connection.dashboard_url == access.url
        with JobsClient(connection) as client:
            assert client.version()["session_name"] == "s"
        assert "bobtok" not in ray.reported()
        assert open_route(kube, raycluster, access) is connection
        with pytest.raises(ClusterUnreachableError) as caught:
            open_route(kube, raycluster)
        assert "kubectl port-forward" in caught.value.remedy
        assert f"-n {namespace} svc/lab-head-svc 8265" in caught.value.remedy
        close_routes()


def test_no_way_at_all_names_each_and_the_remedy(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    raycluster = put_cluster(standin, namespace, port=token_ray.port)
    drop_head(standin, namespace)
    with pytest.raises(ClusterUnreachableError) as caught:
        open_route(kube, raycluster)
    assert "service proxy: the Kubernetes API server answered 503" in caught.value.message
    assert "services/proxy" in caught.value.remedy
    # It is asked again, and not remembered as closed.
    put_head(standin, namespace, port=token_ray.port)
    connection = open_route(kube, raycluster)
    with JobsClient(connection) as client:
        assert client.version()["session_name"] == "s"


def test_a_way_that_was_found_needs_no_api_server_to_be_named_again(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    raycluster = put_cluster(standin, namespace, port=token_ray.port)
    connection = open_route(kube, raycluster)
    with JobsClient(connection) as client:
        client.version()
        standin.fault("away", seconds=2)
        assert open_route(kube, raycluster) is connection
        with pytest.raises(ClusterUnreachableError):
            client.version()
        deadline_s = time.monotonic() + 60
        while True:
            try:
                assert client.version()["session_name"] == "s"
                break
            except ClusterUnreachableError:
                assert time.monotonic() < deadline_s
                time.sleep(0.2)


def test_a_cluster_recreated_is_another_one(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    first = put_cluster(standin, namespace, port=token_ray.port)
    first["metadata"]["uid"] = "one"
    old = open_route(kube, first, PROXY)
    token_ray.token = "another"
    put_token(standin, namespace, "another")
    second = {**first, "metadata": {**first["metadata"], "uid": "two"}}
    new = open_route(kube, second, PROXY)
    assert (old.token, new.token) == ("right", "another")
    with JobsClient(new) as client:
        client.version()


def test_asked_for_ways_are_taken_without_a_question(
    standin: StandIn, namespace: str, kube: Kube, token_ray: TokenRay
) -> None:
    raycluster = put_cluster(standin, namespace, port=token_ray.port)
    inside = open_route(kube, raycluster, Access(way="in-cluster"))
    assert inside.dashboard_url == f"http://lab-head-svc.{namespace}.svc:8265"
    url = f"http://127.0.0.1:{token_ray.port}"
    direct = open_route(kube, raycluster, Access(way="url", url=f"{url}/"))
    assert direct.dashboard_url == url
    assert not token_ray.seen
    with JobsClient(direct) as client:
        client.version()
    assert standin.admin_token not in token_ray.reported()
    assert not is_inside(kube)


def test_an_open_cluster_needs_no_secret(standin: StandIn, namespace: str, kube: Kube) -> None:
    with TokenRay(token=None) as ray:
        connection = open_route(kube, put_cluster(standin, namespace, port=ray.port, token=None))
        assert connection.token is None
        with JobsClient(connection) as client:
            client.version()
        assert "authorization" not in ray.reported()


def test_ports_and_services_are_named_as_the_cluster_has_them() -> None:
    head = {
        "rayStartParams": {"dashboard-port": "9000"},
        "headService": {"metadata": {"name": "own"}},
        "template": {"spec": {"containers": [{"ports": [{"name": "ui", "containerPort": 9000}]}]}},
    }
    spec = {"headGroupSpec": head, "authOptions": {"mode": "token", "secretName": "shared"}}
    target = Target.of({"metadata": {"name": "lab"}, "spec": spec}, namespace="team")
    assert (target.service, target.port_name, target.port) == ("own", "ui", 9000)
    assert target.namespace == "team"
    assert target.secret is not None
    assert target.secret.name == "shared"
    spec["authOptions"]["enableK8sTokenAuth"] = True  # type: ignore[index]
    with pytest.raises(ClusterUnreachableError, match="Kubernetes credentials"):
        Target.of({"metadata": {"name": "lab"}, "spec": spec}, namespace="team")


@pytest.fixture
def package(tmp_path: Path) -> Callable[[int], Path]:
    def make(size_bytes: int) -> Path:
        path = tmp_path / f"{size_bytes}.zip"
        with path.open("wb") as file:
            file.truncate(size_bytes)
        return path

    return make


def test_a_package_over_rays_limit_is_refused_before_a_byte_is_sent(
    standin: StandIn,
    namespace: str,
    kube: Kube,
    token_ray: TokenRay,
    package: Callable[[int], Path],
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port))
    token_ray.seen.clear()
    with (
        JobsClient(connection) as client,
        pytest.raises(WorkspaceError, match=r"101\.0 MiB.*at most 100 MiB") as caught,
    ):
        client.upload_package(package(RAY_LIMIT_BYTES + 2**20), name="_ray_pkg_a.zip")
    assert "storage.volumes" in caught.value.remedy
    assert not token_ray.seen


def test_a_limit_on_the_way_is_found_and_named(
    standin: StandIn,
    namespace: str,
    kube: Kube,
    token_ray: TokenRay,
    package: Callable[[int], Path],
) -> None:
    connection = open_route(kube, put_cluster(standin, namespace, port=token_ray.port))
    token_ray.seen.clear()
    with JobsClient(connection) as client:
        with standin.faulty("too-large", limit=10 * 2**20, path="/proxy/"):
            with pytest.raises(WorkspaceError) as caught:
                client.upload_package(package(20 * 2**20), name="_ray_pkg_b.zip")
            assert client.upload_package(package(9 * 2**20), name="_ray_pkg_c.zip") == 9 * 2**20
        assert "20.0 MiB" in caught.value.message
        assert "service proxy of context standin" in caught.value.message
        assert "about 10.0 MiB" in caught.value.message
        assert client.upload_package(package(20 * 2**20), name="_ray_pkg_d.zip") == 20 * 2**20
    assert [len(one.body) for one in token_ray.seen if one.body] == [9 * 2**20, 20 * 2**20]
