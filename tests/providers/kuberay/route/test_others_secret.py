"""Another user of the namespace edits a live RayCluster, to get the content of another Secret."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.kuberay.route.tunnel import close_routes
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until

EDIT = PolicyRule(("ray.io",), ("rayclusters",), ("get", "patch"))
FROM_SECRET = {"secretKeyRef": {"name": "other", "key": "auth_token"}}
HEAD = {
    "name": "ray-head",
    "image": "rayproject/ray:2.60.0",
    "env": [{"name": "RAY_AUTH_TOKEN", "valueFrom": FROM_SECRET}],
}
IN_POD = {"spec": {"containers": [HEAD]}}
EDITS = {
    "option": {"authOptions": {"mode": "token", "secretName": "other"}},
    "variable": {"authOptions": None, "headGroupSpec": {"template": IN_POD}},
}


def put_secret(cloud: Cloud, labels: dict[str, str]) -> None:
    """The Secret of something else, which Bob cannot read."""
    cloud.standin.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "other", "namespace": cloud.namespace, "labels": labels},
            "data": {"auth_token": base64.b64encode(b"a password").decode()},
        }
    )


def as_bob(cloud: Cloud, spec: dict[str, Any]) -> None:
    """Bob may edit RayClusters, but not read Secrets."""
    cloud.standin.user("bob", "bobtok", [EDIT], cloud.namespace)
    with cloud.standin.client("bobtok") as bob:
        answer = bob.patch(
            f"{cloud.path}/one",
            json={"spec": spec},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.is_success, answer.text
        assert bob.get(f"/api/v1/namespaces/{cloud.namespace}/secrets/other").status_code == 403
    close_routes()


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "colleague"])
@pytest.mark.usefixtures("farm")
def test_a_secret_that_is_not_the_clusters_is_not_sent_to_its_head(
    cloud: Cloud, tmp_path: Path, edit: str, is_owner: bool
) -> None:
    cloud.provider.up(cloud.template())
    # Another cluster's Secret is none of this cluster either.
    put_secret(cloud, {"ray.io/cluster": "two"})
    as_bob(cloud, EDITS[edit])
    provider = KubeRayProvider(cloud.home if is_owner else tmp_path / "another home")
    with pytest.raises(ClusterUnreachableError, match="names Secret other for Ray") as caught:
        provider.connect(f"standin/{cloud.namespace}/one")
    assert "label secret other ray.io/cluster=one" in caught.value.remedy


@pytest.mark.usefixtures("farm")
def test_a_secret_that_names_the_cluster_or_that_the_own_template_names_is_used(
    cloud: Cloud, tmp_path: Path
) -> None:
    put_secret(cloud, {"ray.io/cluster": "one"})
    own = {"authOptions": {"mode": "token", "secretName": "other"}, "rayVersion": "2.60.0"}
    template = cloud.template()
    template = template.model_copy(update={"raycluster": {**template.raycluster, **own}})
    cloud.provider.up(template, wait=False)
    colleague = KubeRayProvider(tmp_path / "another home")

    def token() -> str | None:
        with suppress(ClusterUnreachableError):  # Its head is not there yet.
            return colleague.connect(f"standin/{cloud.namespace}/one").token
        return None

    assert until(token, timeout_s=60) == "a password"
    put_secret(cloud, {})
    close_routes()
    with pytest.raises(ClusterUnreachableError, match="does not belong to the cluster"):
        colleague.connect(f"standin/{cloud.namespace}/one")
    with JobsClient(cloud.provider.connect("one"), cluster="one") as client:
        client.version()
