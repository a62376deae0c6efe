"""What a list says where Ray may not be asked, and how long a name is looked for."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import yaml

from llmops_kernel.errors import ClusterStartError, LLMOpsError
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.state.discovery import KubeScope, remember
from llmops_kernel.providers.protocol import ClusterState
from llmops_kernel.providers.registry import provider_for_name
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_contexts import add_context, silent_port
from tests.providers.kuberay.life.test_denials import as_user_without
from tests.waiting import until

__all__ = ["silent_port"]


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize(("verb", "resource"), [("get", "secrets"), ("get", "services/proxy")])
def test_a_ready_cluster_is_shown_as_ready_though_its_ray_may_not_be_asked(
    cloud: Cloud, verb: str, resource: str
) -> None:
    provider = as_user_without(cloud, verb, resource)
    (info,) = until(lambda: _denied(provider))
    assert info.state is ClusterState.READY
    assert f"not allowed to {verb} {resource}" in info.message
    info = provider.get("one")
    assert info.state is ClusterState.READY
    assert f"not allowed to {verb} {resource}" in info.waiting[0].message
    # Whoever wants to use it cannot: that is said at once.
    with pytest.raises(ClusterStartError, match="is ready, but you may not use it") as caught:
        provider.wait("one")
    assert f"not allowed to {verb} {resource}" in caught.value.message


def _denied(provider: KubeRayProvider) -> list[object] | None:
    infos = provider.list()
    return infos if infos and "not allowed" in infos[0].message else None


def away(cloud: Cloud, port: int, *names: str) -> None:
    for name in names:
        add_context(cloud, name, namespace="ml", port=port)
        remember(cloud.home, KubeScope(name, "ml"))


def test_contexts_that_do_not_answer_are_asked_beside_each_other(
    cloud: Cloud, silent_port: int
) -> None:
    away(cloud, silent_port, "far", "farther", "farthest")
    begun_s = time.monotonic()
    # The name may be one of theirs: nobody says that there is none.
    with pytest.raises(LLMOpsError, match="has not answered"):
        provider_for_name("mistyped")
    assert time.monotonic() - begun_s < 15


@pytest.mark.usefixtures("farm")
def test_no_second_cluster_is_made_while_the_place_of_the_first_is_away(cloud: Cloud) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
    namespace = cloud.standin.create_namespace(f"{cloud.namespace}-b")
    add_context(cloud, "b", namespace=namespace)
    template = cloud.template(contexts=["b", "standin"])
    cloud.provider.up(template, wait=False)
    text = cloud.kubeconfig.read_text()
    add_context(cloud, "b", namespace=namespace, port=closed_port)
    with pytest.raises(ClusterStartError, match=f"'one' was used in b/{namespace}") as caught:
        cloud.provider.up(template, wait=False)
    assert "when that context answers" in caught.value.remedy
    assert cloud.live()["code"] == 404
    # Another name was never there: a context that is away does not block it.
    info = cloud.provider.up(cloud.template("two", contexts=["b", "standin"]), wait=False)
    assert info.context == "standin"
    cloud.kubeconfig.write_text(text)
    assert cloud.provider.up(template, wait=False).context == "b"
    cloud.provider.delete(f"b/{namespace}/one")
    cloud.standin.delete_namespace(namespace)


def test_a_changed_kubeconfig_ends_the_watches_of_the_client_that_it_replaces(
    cloud: Cloud,
) -> None:
    cloud.provider.names()
    before = _watches()
    assert before
    for number in range(3):
        config = yaml.safe_load(cloud.kubeconfig.read_text())
        config["preferences"] = {"number": number}
        cloud.kubeconfig.write_text(yaml.safe_dump(config))
        cloud.provider.names()
    until(lambda: len(_watches()) == 1)
    assert not {*before} & {*_watches()}


def _watches() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "llmops-watch-standin"]
