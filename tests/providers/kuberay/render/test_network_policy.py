"""The NetworkPolicy of a cluster: what it lets in, and that it lives and ends with the cluster."""

from __future__ import annotations

import time

import pytest

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.kuberay.api.paths import object_path
from llmops_kernel.providers.kuberay.render.manifest import render
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud

GROUP = {"name": "w", "cpus": 2, "memory": "4Gi"}


def test_only_pods_of_the_cluster_reach_the_ports_of_a_training() -> None:
    template = KubeRayTemplate.model_validate(
        {"name": "lab", "image": "i", "worker_groups": [GROUP], "network_policy": True}
    )
    policy = render(template, namespace="ml").companions[-1]
    own = {"matchLabels": {"ray.io/cluster": "lab"}}
    assert policy["spec"]["podSelector"] == own
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    of_the_cluster, of_all = policy["spec"]["ingress"]
    assert of_the_cluster == {"from": [{"podSelector": own}]}
    # The service proxy's address is unknown, so the dashboard must be open; not the GCS, not
    # Ray Client, and none of the ports that a training picks.
    assert [one["port"] for one in of_all["ports"]] == [8265, 8080]
    assert object_path(policy).endswith("/networkpolicies/lab-pods")


@pytest.mark.usefixtures("farm")
def test_the_cluster_owns_it_and_it_goes_with_the_cluster(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(network_policy=True))
    path = f"/apis/networking.k8s.io/v1/namespaces/{cloud.namespace}/networkpolicies"
    with cloud.standin.client() as http:
        (policy,) = http.get(path).raise_for_status().json()["items"]
        (owner,) = policy["metadata"]["ownerReferences"]
        assert owner["uid"] == cloud.live()["metadata"]["uid"]
        pods = f"/api/v1/namespaces/{cloud.namespace}/pods"
        selector = policy["spec"]["podSelector"]["matchLabels"]
        labels = ",".join(f"{name}={value}" for name, value in selector.items())
        chosen = http.get(pods, params={"labelSelector": labels}).raise_for_status().json()
        assert len(chosen["items"]) == 3, "the head and two workers"
        cloud.provider.delete("one")
        # Garbage collection comes a little later.
        deadline_s = time.monotonic() + 60
        while http.get(path).raise_for_status().json()["items"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


@pytest.mark.usefixtures("farm")
def test_without_the_right_nothing_is_created_and_the_rule_is_named(cloud: Cloud) -> None:
    rule = PolicyRule(("", "ray.io"), ("*",), ("*",))
    cloud.standin.user("old-role", "oldtoken", [rule], namespace=cloud.namespace)
    cloud.login("oldtoken")
    with pytest.raises(LLMOpsError, match="networkpolicies") as refused:
        cloud.provider.up(cloud.template(network_policy=True), wait=False)
    assert "rbac.yaml" in refused.value.remedy
    assert "NotFound" in str(cloud.live().get("reason"))
    cloud.provider.up(cloud.template(), wait=False)
