"""A template with several contexts: where the cluster goes, and what is told of the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from llmops_kernel.errors import ClusterStartError
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud

pytestmark = pytest.mark.usefixtures("farm")
CHOSEN = "llmops.dev/chosen"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody who takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        for connection in taken:
            connection.close()


def add_context(cloud: Cloud, name: str, *, namespace: str, port: int | None = None) -> None:
    """Another context of the same file; with a port it leads to another server."""
    cloud.standin.kubeconfig(cloud.kubeconfig, context=name, namespace=namespace)
    if port is None:
        return
    config = yaml.safe_load(cloud.kubeconfig.read_text())
    for cluster in config["clusters"]:
        if cluster["name"] == name:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    cloud.kubeconfig.write_text(yaml.safe_dump(config))


def add_namespace(cloud: Cloud, context: str, **hard: str) -> str:
    namespace = cloud.standin.create_namespace(f"{cloud.namespace}-{context}")
    add_context(cloud, context, namespace=namespace)
    if hard:
        named = {name.replace("_", "."): value for name, value in hard.items()}
        cloud.standin.put(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "team", "namespace": namespace},
                "spec": {"hard": named},
                "status": {"hard": named, "used": dict.fromkeys(named, "0")},
            }
        )
    return namespace


def test_the_first_with_capacity_takes_it_and_says_why(cloud: Cloud) -> None:
    add_namespace(cloud, "small", requests_cpu="2")
    namespace = add_namespace(cloud, "large")
    lines: list[str] = []
    info = cloud.provider.up(cloud.template(contexts=["small", "large"]), progress=lines.append)
    assert (info.context, info.namespace) == ("large", namespace)
    why = next(line for line in lines if "has free capacity" in line)
    assert "large" in why
    assert f"skipped small/{cloud.namespace}-small: quota team forbids 3 of 2 requests.cpu" in why
    path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/one"
    with cloud.standin.client() as http:
        assert http.get(path).json()["metadata"]["annotations"][CHOSEN] == why
    assert info.chosen == why
    assert info.created_by.endswith(f"@{socket.gethostname()}")
    # The first one has room now; the cluster is there already and stays the only one.
    with cloud.standin.client() as http:
        http.delete(f"/api/v1/namespaces/{cloud.namespace}-small/resourcequotas/team")
    again = cloud.provider.up(cloud.template(contexts=["small", "large"]))
    assert (again.context, again.name) == ("large", info.name)
    cloud.provider.delete(info.name)


def test_contexts_that_cannot_be_asked_are_passed_over_in_time(
    cloud: Cloud, silent_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
    add_context(cloud, "closed", namespace="x", port=closed_port)
    add_context(cloud, "silent", namespace="x", port=silent_port)
    add_context(cloud, "no-namespace", namespace="nowhere")
    template = cloud.template(contexts=["closed", "silent", "no-namespace", "standin"])
    begun_s = time.monotonic()
    info = cloud.provider.up(template, wait=False)
    assert time.monotonic() - begun_s < 8
    assert info.context == "standin"
    why = cloud.live()["metadata"]["annotations"][CHOSEN]
    assert why.startswith(f"standin/{cloud.namespace} has free capacity")
    assert "skipped closed/x: cannot be checked" in why
    assert "skipped silent/x: cannot be checked (no answer within 5 s)" in why
    assert "skipped no-namespace/nowhere: there is no namespace nowhere" in why


def test_where_it_fits_nowhere_each_context_says_why(cloud: Cloud) -> None:
    add_namespace(cloud, "small", requests_cpu="2")
    add_namespace(cloud, "few", pods="2")
    with pytest.raises(ClusterStartError) as caught:
        cloud.provider.up(cloud.template(contexts=["small", "few"]))
    assert "small: quota team forbids 3 of 2 requests.cpu" in caught.value.message
    assert "few: quota team forbids 3 of 2 pods" in caught.value.message
    assert "contexts" in caught.value.remedy
    assert cloud.provider.names() == ()


def test_what_is_hidden_comes_after_what_is_known(cloud: Cloud) -> None:
    namespace = add_namespace(cloud, "blind")
    rule = PolicyRule(("", "ray.io"), ("rayclusters", "namespaces", "configmaps"), ("*",))
    cloud.standin.user("bob", "bobtoken", [rule], namespace=namespace)
    cloud.standin.kubeconfig(
        cloud.kubeconfig, context="blind", namespace=namespace, token="bobtoken"
    )
    add_namespace(cloud, "large")
    info = cloud.provider.up(cloud.template(contexts=["blind", "large"]), wait=False)
    assert info.context == "large"
    only = cloud.template("two", contexts=["blind", "few"])
    add_namespace(cloud, "few", pods="2")
    info = cloud.provider.up(only, wait=False)
    assert info.context == "blind"
    with cloud.standin.client() as http:
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/two"
        why = http.get(path).json()["metadata"]["annotations"][CHOSEN]
    assert why == f"blind/{namespace} may have free capacity (no permission to list its nodes)"


def test_no_gpu_here_and_gpus_there(cloud: Cloud, farm: Farm, tmp_path: Path) -> None:
    """Both contexts lead to the same nodes, of which none has GPUs: the error says so."""
    add_namespace(cloud, "other")
    group = {"name": "g", "cpus": "1", "memory": "1Gi", "gpus": 8}
    with pytest.raises(ClusterStartError, match="cannot hold 1 worker of group g even when empty"):
        cloud.provider.up(cloud.template(contexts=["standin", "other"], worker_groups=[group]))
    farm.add_node("gpu-a", cpu="64", memory="512Gi", gpu=8)
    info = cloud.provider.up(cloud.template(contexts=["standin", "other"], worker_groups=[group]))
    assert info.context == "standin"
    assert "8 of 8 nvidia.com/gpu are free" in cloud.live()["metadata"]["annotations"][CHOSEN]
