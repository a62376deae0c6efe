"""ConfigMaps and Secrets that others made under the names that a cluster needs."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from llmops_kernel.errors import ClusterStateError
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.api.test_refusals import without_auth
from tests.providers.kuberay.conftest import Cloud

OURS = {"app.kubernetes.io/managed-by": "llmops-kernel", "app.kubernetes.io/instance": "one"}
ANY = PolicyRule(("",), ("configmaps", "secrets"), ("*",))


def as_bob(
    standin: StandIn, namespace: str, kind: str, name: str, *, data: dict[str, str], **meta: Any
) -> dict[str, Any]:
    """Another user of the namespace creates an object."""
    standin.user("bob", "bobtok", [ANY], namespace)
    body = {"apiVersion": "v1", "kind": kind, "data": data}
    body["metadata"] = {"name": name, **meta}
    with standin.client("bobtok") as bob:
        answer = bob.post(f"/api/v1/namespaces/{namespace}/{kind.lower()}s", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def found(standin: StandIn, namespace: str, kind: str, name: str) -> dict[str, Any]:
    with standin.client() as http:
        return http.get(f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name}").json()


def owner(obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    kind = obj.get("kind", "RayCluster")
    version = "ray.io/v1" if kind == "RayCluster" else "v1"
    return {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}


@pytest.mark.parametrize(
    ("labels", "owned_by", "why"),
    [
        ({}, "", "its label app.kubernetes.io/managed-by is missing"),
        ({**OURS, "app.kubernetes.io/instance": "two"}, "", "is two, not one"),
        (OURS, "ConfigMap", "its owner is ConfigMap web"),
        (OURS, "RayCluster", "its owner is RayCluster two"),
    ],
    ids=["a stranger's", "another cluster's", "another owner's", "another RayCluster's"],
)
def test_a_config_map_of_somebody_else_is_not_taken_over(
    cloud: Cloud, labels: dict[str, str], owned_by: str, why: str
) -> None:
    meta: dict[str, Any] = {"labels": labels}
    if owned_by == "ConfigMap":
        web = as_bob(cloud.standin, cloud.namespace, "ConfigMap", "web", data={})
        meta["ownerReferences"] = [owner({"kind": "ConfigMap", **web})]
    elif owned_by:
        cloud.provider.up(cloud.template("two"), wait=False)
        meta["ownerReferences"] = [owner(cloud.live("two"))]
    before = as_bob(
        cloud.standin, cloud.namespace, "ConfigMap", "one-warm", data={"a": "1"}, **meta
    )
    with pytest.raises(ClusterStateError, match=why) as caught:
        cloud.provider.up(cloud.template(), wait=False)
    assert "choose another name" in caught.value.remedy
    assert f"-n {cloud.namespace} delete configmap one-warm" in caught.value.remedy
    assert cloud.live()["code"] == 404
    assert found(cloud.standin, cloud.namespace, "ConfigMap", "one-warm") == before


def test_apply_takes_no_config_map_over_and_changes_nothing_then(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(warm={"enabled": False}), wait=False)
    theirs = as_bob(cloud.standin, cloud.namespace, "ConfigMap", "one-warm", data={"a": "1"})
    before = cloud.live()["metadata"]["generation"]
    with pytest.raises(ClusterStateError, match="managed-by is missing"):
        cloud.provider.apply(cloud.template())
    assert cloud.live()["metadata"]["generation"] == before
    assert found(cloud.standin, cloud.namespace, "ConfigMap", "one-warm") == theirs


def test_what_has_no_data_is_updated_too(cloud: Cloud) -> None:
    guarded = cloud.template(network_policy=True)
    cloud.provider.up(guarded, wait=False)
    cloud.provider.apply(guarded)
    path = f"/apis/networking.k8s.io/v1/namespaces/{cloud.namespace}/networkpolicies"
    with cloud.standin.client() as http:
        policies = http.get(path).json()["items"]
    assert [len(one["metadata"]["ownerReferences"]) for one in policies] == [1]


def test_what_was_added_to_a_config_map_does_not_reach_the_pods(cloud: Cloud) -> None:
    """Its keys are files on the PYTHONPATH of every pod."""
    planted = {"torch.py": "print('theirs')"}
    as_bob(cloud.standin, cloud.namespace, "ConfigMap", "one-warm", data=planted, labels=OURS)
    cloud.provider.up(cloud.template(), wait=False)
    made = found(cloud.standin, cloud.namespace, "ConfigMap", "one-warm")
    assert "torch.py" not in made["data"]
    assert "llmops_warm_hook.py" in made["data"]
    # Whoever applied it keeps it: it is not deleted with the cluster.
    assert "ownerReferences" not in made["metadata"]


def test_a_secret_of_somebody_else_is_not_taken_over(cloud: Cloud) -> None:
    """As of KubeRay 1.4, where the cluster's token is a Secret that we make."""
    with StandIn() as older:
        older.install_crd(without_auth())
        older.create_namespace("ml")
        older.kubeconfig(cloud.kubeconfig, context="older", namespace="ml")
        key = base64.b64encode(b"a key of bob").decode()
        before = as_bob(older, "ml", "Secret", "one", data={"key": key}, labels=OURS)
        with pytest.raises(ClusterStateError, match=r"Secret one in namespace ml.*no owner"):
            cloud.provider.up(cloud.template(contexts=["older"]), wait=False)
        assert found(older, "ml", "Secret", "one") == before
        with older.client() as http:
            assert http.get("/apis/ray.io/v1/namespaces/ml/rayclusters/one").status_code == 404
