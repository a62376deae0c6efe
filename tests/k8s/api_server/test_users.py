"""Users of the stand-in: roles, tokens that end, certificates, questions about oneself."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.k8s.standin.process import PolicyRule, StandIn
from tests.k8s.support.small_objects import RAYCLUSTERS, raycluster

READ = PolicyRule(("ray.io",), ("rayclusters",), ("get", "list", "watch"))
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(client: httpx.Client, namespace: str, verb: str, resource: str, group: str) -> Any:
    attributes = {"namespace": namespace, "verb": verb, "resource": resource, "group": group}
    return client.post(REVIEW, json={"spec": {"resourceAttributes": attributes}}).json()["status"]


def test_a_role_allows_what_it_says_where_it_says(standin: StandIn, namespace: str) -> None:
    standin.user("bob", "bobtok", [READ], namespace)
    path = RAYCLUSTERS.format(namespace)
    with standin.client("bobtok") as bob:
        assert bob.get(path).status_code == 200
        refused = bob.post(path, json=raycluster("a"))
        elsewhere = bob.get(RAYCLUSTERS.format("default"))
        everywhere = bob.get("/apis/ray.io/v1/rayclusters")
        allowed = may(bob, namespace, "list", "rayclusters", "ray.io")
        denied = may(bob, namespace, "create", "rayclusters", "ray.io")
    assert refused.json()["message"] == (
        'rayclusters.ray.io is forbidden: User "bob" cannot create resource "rayclusters" in API '
        f'group "ray.io" in the namespace "{namespace}"'
    )
    assert elsewhere.status_code == 403
    assert everywhere.json()["message"].endswith("at the cluster scope")
    assert allowed["allowed"]
    assert allowed["reason"].startswith("RBAC: allowed by RoleBinding")
    assert not denied["allowed"]


def test_a_role_by_name_and_subresource(standin: StandIn, namespace: str) -> None:
    rules = [
        PolicyRule(("",), ("services/proxy",), ("get",), ("http:head:8265",)),
        PolicyRule(("",), ("pods/log",), ("get",)),
    ]
    standin.user("carol", "caroltok", rules, namespace)
    services = f"/api/v1/namespaces/{namespace}/services"
    with standin.client("caroltok") as carol:
        assert carol.get(f"{services}/http:head:8265/proxy/").status_code == 404
        assert carol.get(f"{services}/head:8265/proxy/").status_code == 403
        assert carol.post(f"{services}/http:head:8265/proxy/").status_code == 403
        pods = services.replace("services", "pods")
        assert carol.get(f"{pods}/absent/log").status_code == 404
        assert carol.get(f"{pods}/absent").status_code == 403


def test_roles_are_objects_that_anybody_allowed_may_make(standin: StandIn, namespace: str) -> None:
    """The way an administrator hands out rights: apply a Role and a RoleBinding."""
    standin.user("dave", "davetok")
    group = "rbac.authorization.k8s.io"
    root = f"/apis/{group}/v1/namespaces/{namespace}"
    role = {"metadata": {"name": "r"}, "rules": [READ.body()]}
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "dave"}],
    }
    path = RAYCLUSTERS.format(namespace)
    with standin.client() as admin, standin.client("davetok") as dave:
        assert dave.get(path).status_code == 403
        assert admin.post(f"{root}/roles", json=role).status_code == 201
        assert admin.post(f"{root}/rolebindings", json=binding).status_code == 201
        assert dave.get(path).status_code == 200


def test_an_unknown_group_is_forbidden_before_it_is_absent(standin: StandIn) -> None:
    with standin.client("usertok") as alice, standin.client() as admin:
        assert alice.get("/apis/nope.io/v1/foos").status_code == 403
        assert admin.get("/apis/nope.io/v1/foos").status_code == 404


def test_tokens_end(standin: StandIn) -> None:
    standin.user("erin", "short", lifetime_s=0.3)
    standin.user("erin", "long")
    with standin.client("short") as client:
        assert client.get("/version").status_code == 200
        time.sleep(0.4)
        assert client.get("/version").json()["reason"] == "Unauthorized"
    with standin.client("long") as client:
        assert client.get("/version").status_code == 200
        standin.fault("expire", token="long")
        assert client.get("/version").status_code == 401


def test_a_service_account_gets_a_token(standin: StandIn, namespace: str) -> None:
    root = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    with standin.client() as admin:
        admin.post(root, json={"metadata": {"name": "ci"}})
        made = admin.post(f"{root}/ci/token", json={"spec": {"expirationSeconds": 600}}).json()
    with standin.client(made["status"]["token"]) as account:
        name = account.post(who, json={}).json()["status"]["userInfo"]["username"]
    assert name == f"system:serviceaccount:{namespace}:ci"


def test_the_official_client_reads_our_kubeconfigs(
    standin: StandIn, namespace: str, tmp_path: Path
) -> None:
    """By token, by a command that prints credentials, by a certificate."""
    kubernetes = pytest.importorskip("kubernetes")
    plugin = tmp_path / "plugin.py"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": standin.admin_token},
    }
    plugin.write_text(f"print({json.dumps(json.dumps(credential))})")
    file = tmp_path / "config"
    standin.kubeconfig(file, context="token", namespace=namespace)
    standin.kubeconfig(file, context="exec", exec_command=[sys.executable, str(plugin)])
    standin.kubeconfig(file, context="certificate", client_name="frank")
    standin.user("frank", "unused", [READ], namespace)
    for context in ("token", "exec", "certificate"):
        client = kubernetes.config.new_client_from_config(str(file), context)
        objects = kubernetes.client.CustomObjectsApi(client)
        found = objects.list_namespaced_custom_object("ray.io", "v1", namespace, "rayclusters")
        assert found["kind"] == "RayClusterList"


def test_the_official_client_makes_and_watches(
    standin: StandIn, namespace: str, tmp_path: Path
) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    file = standin.kubeconfig(tmp_path / "config")
    client = kubernetes.config.new_client_from_config(str(file))
    objects = kubernetes.client.CustomObjectsApi(client)
    where = ("ray.io", "v1", namespace, "rayclusters")
    objects.create_namespaced_custom_object(*where, raycluster("a"))
    objects.patch_namespaced_custom_object(*where, "a", {"spec": {"suspend": True}})
    watch = kubernetes.watch.Watch()
    seen = [
        (event["type"], event["object"]["spec"]["suspend"])
        for event in watch.stream(objects.list_namespaced_custom_object, *where, timeout_seconds=1)
    ]
    assert seen == [("ADDED", True)]
    core = kubernetes.client.CoreV1Api(client)
    core.create_namespaced_secret(namespace, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert core.read_namespaced_secret("s", namespace).data == {"a": "Yg=="}
    assert core.list_namespaced_pod(namespace).items == []
    assert core.list_namespace().items
    objects.delete_namespaced_custom_object(*where, "a")
    with pytest.raises(kubernetes.client.ApiException) as error:
        objects.get_namespaced_custom_object(*where, "a")
    assert error.value.status == 404
