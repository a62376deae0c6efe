"""`up` whose request is carried out, while its answer never arrives."""

from __future__ import annotations

import pytest

from llmops_kernel.providers.kuberay.api.client import KubeUnreachable
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.resource import own_clusters
from tests.providers.kuberay.conftest import Cloud

CREATION = r"/rayclusters\?(?!.*dryRun)"


def config_map(cloud: Cloud) -> int:
    with cloud.standin.client() as http:
        return http.get(f"/api/v1/namespaces/{cloud.namespace}/configmaps/one-warm").status_code


@pytest.mark.parametrize("kind", ["lose", "drop", "503"])
def test_the_cluster_is_read_back_or_asked_for_again(cloud: Cloud, kind: str) -> None:
    cloud.standin.fault(kind, method="POST", path=CREATION, count=1)
    cloud.provider.up(cloud.template(), wait=False)
    assert own_clusters.read(cloud.home, cloud.live()).is_guarded
    assert config_map(cloud) == 200
    assert "shared" not in cloud.provider.up(cloud.template(), wait=False).message


def test_the_next_up_knows_the_cluster_that_it_could_not_read_back(cloud: Cloud) -> None:
    def cut_off(line: str) -> None:
        if line.startswith("Creating"):
            cloud.standin.fault("lose", method="POST", path=CREATION, count=1)
            cloud.standin.fault("503", method="GET", path="/rayclusters/one")

    with pytest.raises(KubeUnreachable):
        cloud.provider.up(cloud.template(), wait=False, progress=cut_off)
    cloud.standin.heal()
    assert cloud.live()["kind"] == "RayCluster"
    assert config_map(cloud) == 404
    again = KubeRayProvider(cloud.home).up(cloud.template(), wait=False)
    assert "shared" not in again.message
    assert own_clusters.read(cloud.home, cloud.live()).is_guarded
    assert config_map(cloud) == 200
    # Another home has no mark of it.
    bob = KubeRayProvider(cloud.home.parent / "bob")
    assert "is shared" in bob.up(cloud.template(), wait=False).message
