"""Which clusters there are, what they are called, and that one place hides no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ClusterNotFoundError
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.state.discovery import (
    KubeScope,
    joined,
    known_scopes,
    remember,
    scope_of,
)
from llmops_kernel.providers.registry import provider_for_name, survey
from tests.providers.kuberay.api.test_cache import raycluster
from tests.providers.kuberay.conftest import Cloud


@pytest.fixture
def other(cloud: Cloud) -> Iterator[str]:
    """A second namespace in which clusters were made before."""
    name = cloud.standin.create_namespace(f"{cloud.namespace}-b")
    remember(cloud.home, KubeScope("standin", name))
    yield name
    cloud.standin.delete_namespace(name)


def create(cloud: Cloud, namespace: str, name: str) -> None:
    with cloud.standin.client() as http:
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
        assert http.post(path, json=raycluster(name)).status_code == 201


def test_a_name_is_short_while_it_is_unique(cloud: Cloud, other: str) -> None:
    create(cloud, cloud.namespace, "a")
    create(cloud, other, "b")
    assert cloud.provider.names() == ("a", "b")
    assert cloud.provider.get("b").namespace == other


def test_two_of_one_name_are_called_by_their_places(cloud: Cloud, other: str) -> None:
    create(cloud, cloud.namespace, "a")
    create(cloud, other, "a")
    whole = tuple(sorted(f"standin/{scope}/a" for scope in (cloud.namespace, other)))
    assert cloud.provider.names() == whole
    with pytest.raises(ClusterNotFoundError, match="2 clusters have the name 'a'") as caught:
        cloud.provider.get("a")
    assert all(name in caught.value.message for name in whole)
    assert cloud.provider.get(f"standin/{other}/a").namespace == other
    cloud.provider.delete(f"standin/{other}/a")
    assert cloud.provider.get("a").namespace == cloud.namespace


def test_a_whole_name_reaches_a_place_that_nobody_has_used(cloud: Cloud) -> None:
    namespace = cloud.standin.create_namespace(f"{cloud.namespace}-c")
    create(cloud, namespace, "far")
    assert cloud.provider.get(f"standin/{namespace}/far").namespace == namespace
    cloud.standin.delete_namespace(namespace)


def test_contexts_may_have_slashes_and_colons() -> None:
    assert scope_of("arn:aws:eks:eu:1:cluster/x/ml/a") == (
        KubeScope("arn:aws:eks:eu:1:cluster/x", "ml"),
        "a",
    )
    assert scope_of("default/api:6443/me/ml/a") == (KubeScope("default/api:6443/me", "ml"), "a")
    assert scope_of("a/b") is None


def test_a_local_cluster_of_that_name_goes_first_and_asks_nobody(cloud: Cloud) -> None:
    create(cloud, cloud.namespace, "local")
    folder = cloud.home / "clusters" / "local"
    folder.mkdir(parents=True)
    (folder / "cluster.json").write_text(json.dumps(_head()))
    cloud.standin.stats(reset=True)
    assert provider_for_name("local").name == "local"
    assert cloud.standin.stats()["requests"].get("*", 0) == 0
    assert cloud.provider.names() == (f"standin/{cloud.namespace}/local",)
    full = f"standin/{cloud.namespace}/local"
    found = provider_for_name(full).get(full)
    assert (found.provider, found.context) == ("kuberay", "standin")


def _head() -> dict[str, Any]:
    return {
        "name": "local",
        "host": "elsewhere",
        "temp_dir": "/tmp/none",
        "dashboard_port": 1,
        "started_s": 0.0,
        "stopped_s": 1.0,
        "ray_version": "2.60.0",
        "template": {},
    }


def test_a_place_in_trouble_hides_no_other(cloud: Cloud, other: str, tmp_path: Path) -> None:
    create(cloud, cloud.namespace, "a")
    text = cloud.kubeconfig.read_text()
    cloud.standin.kubeconfig(cloud.kubeconfig, context="gone", namespace="ml")
    config = cloud.kubeconfig.read_text()
    assert config != text
    import yaml

    data = yaml.safe_load(config)
    next(one for one in data["clusters"] if one["name"] == "gone")["cluster"]["server"] = (
        "https://127.0.0.1:1"
    )
    cloud.kubeconfig.write_text(yaml.safe_dump(data))
    remember(cloud.home, KubeScope("gone", "ml"))
    looked = survey()
    assert [info.name for info in looked.infos] == ["a"]
    assert len(looked.errors) == 1
    assert "context gone" in looked.errors[0].message
    assert looked.silent == (), "some of it could be listed"
    assert cloud.provider.names() == ("a",)


def test_a_server_that_is_away_does_not_mean_that_there_is_no_cluster(cloud: Cloud) -> None:
    """Nobody made a cluster from this home, but the name may be one of that server's."""
    import yaml

    data = yaml.safe_load(cloud.kubeconfig.read_text())
    data["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    cloud.kubeconfig.write_text(yaml.safe_dump(data))
    with pytest.raises(ClusterNotFoundError) as caught:
        provider_for_name("x")
    assert caught.value.message.startswith("Whether there is a cluster 'x' is unknown: ")
    assert "context standin" in caught.value.message
    assert "check the VPN" in caught.value.remedy


def test_a_kubeconfig_for_other_things_is_no_trouble(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server without KubeRay, where nobody made a cluster."""
    cloud.standin.remove_crd("rayclusters", "ray.io")
    try:
        looked = survey()
    finally:
        from tests.k8s.recordings import RAYCLUSTER_CRD

        cloud.standin.install_crd(RAYCLUSTER_CRD)
    assert looked.infos == ()
    assert looked.errors == ()
    with pytest.raises(ClusterNotFoundError, match="no cluster 'x'"):
        provider_for_name("x")


def test_places_are_remembered_by_up_and_survive_a_broken_file(cloud: Cloud, other: str) -> None:
    cloud.provider.up(cloud.template(namespace=other), wait=False)
    scopes = known_scopes(cloud.home)
    assert scopes[0] == KubeScope("standin", cloud.namespace)
    assert KubeScope("standin", other) in scopes
    (cloud.home / "kuberay" / "places.json").write_text("{broken")
    assert known_scopes(cloud.home) == (KubeScope("standin", cloud.namespace),)
    assert KubeRayProvider(cloud.home).names() == ()
    assert KubeRayProvider(cloud.home).get(f"standin/{other}/one").name


def denied(namespace: str, *, reason: str = "Forbidden") -> tuple[KubeScope, KubeDenied]:
    error = KubeDenied(
        f"'ann' is not allowed to list rayclusters in namespace {namespace}",
        remedy="ask for a Role",
        reason=reason,
        causes=[("list rayclusters", "ray.io")],
    )
    return KubeScope("dev", namespace), error


def test_namespaces_without_a_right_are_one_error() -> None:
    many = [denied(f"team-{number}") for number in range(8)]
    expired = denied("x", reason="Unauthorized")
    first, second = joined([*many, expired])
    assert first.message == (
        "'ann' is not allowed to list rayclusters in namespace team-0. The same in 7 namespaces"
        " where clusters were used before: team-1, team-2, team-3, team-4, team-5 and 2 more"
    )
    assert (first.remedy, first.causes) == ("ask for a Role", (("list rayclusters", "ray.io"),))
    assert second is expired[1]
    assert joined(many[:1]) == [many[0][1]]
    assert joined([]) == []
