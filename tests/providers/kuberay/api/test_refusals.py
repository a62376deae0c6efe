"""What the API server refuses, and what the user reads then."""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import ClusterNotFoundError, LLMOpsError
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, KubeUnreachable
from llmops_kernel.providers.kuberay.api.errors import error_of
from llmops_kernel.providers.kuberay.api.paths import RAYCLUSTER_CRD, raycluster_path
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.protocol import ClusterAction
from tests.k8s.recordings import RAYCLUSTER_CRD as CRD_FILE
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.providers.kuberay.conftest import Cloud

RAY = ("ray.io",)


def _merged(**spec: Any) -> dict[str, Any]:
    return {"raycluster": spec}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong type": (_merged(suspend="yes"), "spec.suspend: Invalid value"),
    "not in the list": (
        _merged(autoscalerOptions={"upscalingMode": "Fast"}),
        'spec.autoscalerOptions.upscalingMode: Unsupported value: "Fast"',
    ),
    "unknown field": (_merged(workerGroupSpec=[]), "spec.workerGroupSpec: unknown field"),
    "rule of the CRD": (_merged(managedBy="me"), "spec.managedBy: Invalid value"),
    "missing": (_merged(headGroupSpec=None), "spec.headGroupSpec: Required value"),
    "number too large": (
        _merged(workerGroupSpecs=[{"groupName": "w", "replicas": 2**40}]),
        "spec.workerGroupSpecs[0].replicas",
    ),
    "two at once": (
        _merged(suspend="yes", foo=1),
        "spec.foo: unknown field",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_refused_field_is_a_line(cloud: Cloud, case: str) -> None:
    fields, line = REFUSED[case]
    with pytest.raises(KubeError) as caught:
        cloud.provider.up(cloud.template(**fields), wait=False)
    assert line in caught.value.message
    assert caught.value.remedy
    assert caught.value.status == 422
    assert cloud.live()["code"] == 404, "nothing was made"


def test_a_conflict_names_the_other_owner_and_force_takes_over(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    _own_by_others(cloud)
    with pytest.raises(KubeError) as caught:
        cloud.provider.apply(cloud.template(ray_version="2.60.0"))
    assert 'conflict with "team-tool"' in caught.value.message
    assert ".spec.rayVersion" in caught.value.message
    assert "--force" in caught.value.remedy
    assert cloud.live()["spec"]["rayVersion"] == "2.59.0"
    cloud.provider.apply(cloud.template(), force=True)
    assert cloud.live()["spec"]["rayVersion"] == "2.60.0"


def _own_by_others(cloud: Cloud) -> None:
    body = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "one"},
        "spec": {"rayVersion": "2.59.0"},
    }
    with cloud.standin.client() as http:
        answer = http.patch(
            f"{cloud.path}/one?fieldManager=team-tool&force=true",
            content=json.dumps(body),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
    assert answer.is_success, answer.text


def test_a_name_that_is_taken_is_attached_to_and_not_overwritten(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    body = cloud.live()
    kube = Kube()
    with pytest.raises(KubeError) as caught:
        kube.create(raycluster_path(cloud.namespace), {**body, "metadata": {"name": "one"}})
    assert (caught.value.reason, caught.value.status) == ("AlreadyExists", 409)


def test_a_missing_namespace(cloud: Cloud) -> None:
    with pytest.raises(KubeError, match="no namespace 'absent'") as caught:
        cloud.provider.up(cloud.template(namespace="absent"), wait=False)
    assert "create namespace absent`" in caught.value.remedy


def test_a_context_that_is_not_in_the_kubeconfig(cloud: Cloud) -> None:
    with pytest.raises(KubeError, match="no kubeconfig context 'gcp'; known: standin"):
        cloud.provider.up(cloud.template(contexts=["gcp"]), wait=False)


def test_an_admission_policy_of_the_api_server_is_named() -> None:
    """As Kubernetes 1.36 answers where a ValidatingAdmissionPolicy denies a RayCluster."""
    said = (
        'rayclusters.ray.io "one" is forbidden: ValidatingAdmissionPolicy '
        "'no-latest' with binding 'no-latest-all' denied request: images need a version"
    )
    body = {"kind": "Status", "reason": "Invalid", "message": said}
    body["details"] = {"name": "one", "kind": "rayclusters", "causes": [{"message": said}]}
    error = error_of(422, body, method="POST", path="/x", context="dev")
    assert error.message == (
        "Rejected in context dev: admission policy no-latest denied the request: images need a"
        " version"
    )
    assert "get validatingadmissionpolicy no-latest" in error.remedy


def test_no_operator(cloud: Cloud, tmp_path: Path) -> None:
    with StandIn(controllers=False, kueue=False, crd=None) as bare:
        bare.kubeconfig(cloud.kubeconfig, context="bare")
        with pytest.raises(KubeError, match="operator is not installed in context bare") as caught:
            cloud.provider.up(cloud.template(contexts=["bare"]), wait=False)
        assert "kuberay-operator kuberay/kuberay-operator" in caught.value.remedy


def test_rights_that_are_missing_are_named_with_their_rule(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    cloud.standin.user("eve", "eve-token", [PolicyRule(RAY, ("rayclusters",), ("get", "list"))])
    cloud.login("eve-token")
    provider = KubeRayProvider(cloud.home)
    info = _until_known(provider)
    assert info.actions[ClusterAction.SUSPEND] == (
        f"Needs patch on rayclusters in namespace {cloud.namespace}:"
        " rule 1 of cluster_templates/rbac.yaml"
    )
    assert "delete on rayclusters" in info.actions[ClusterAction.DELETE]
    with pytest.raises(
        KubeError, match=r"'eve' is not allowed to patch rayclusters in namespace"
    ) as caught:
        provider.keep("one", for_s=60)
    assert 'verbs: ["patch"]' in caught.value.remedy
    with pytest.raises(KubeError, match="is not allowed to create rayclusters"):
        provider.up(cloud.template("two"), wait=False)
    assert caught.value.status == 403


def test_a_right_that_is_granted_later_is_noticed(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    cloud.standin.user("fay", "fay-token", [PolicyRule(RAY, ("rayclusters",), ("get", "list"))])
    cloud.login("fay-token")
    provider = KubeRayProvider(cloud.home)
    assert _until_known(provider).actions[ClusterAction.SUSPEND]
    cloud.standin.user("fay", "fay-token", [PolicyRule(("*",), ("*",), ("*",))])
    deadline_s = time.monotonic() + 60
    while provider.get("one").actions[ClusterAction.SUSPEND]:
        assert time.monotonic() < deadline_s, "the right was never asked for again"
        time.sleep(0.2)


def _until_known(provider: KubeRayProvider) -> Any:
    deadline_s = time.monotonic() + 10
    while True:
        info = provider.get("one")
        if info.actions[ClusterAction.SUSPEND] or time.monotonic() > deadline_s:
            return info
        time.sleep(0.1)


def test_an_expired_token_shows_what_to_run(cloud: Cloud) -> None:
    cloud.standin.user("bob", "bob-token", [PolicyRule(("*",), ("*",), ("*",))])
    cloud.login("bob-token")
    provider = KubeRayProvider(cloud.home)
    assert provider.names() == ()
    cloud.standin.fault("expire", token="bob-token")
    with pytest.raises(KubeError, match="rejected the credentials") as caught:
        provider.up(cloud.template(), wait=False)
    assert caught.value.status == 401
    assert "sign in again" in caught.value.remedy
    assert "bob-token" not in str(caught.value) + repr(caught.value)


def test_a_new_token_in_the_kubeconfig_is_taken_up_by_the_same_client(cloud: Cloud) -> None:
    cloud.standin.user("ann", "ann-1", [PolicyRule(("*",), ("*",), ("*",))])
    cloud.standin.user("ann", "ann-2")
    cloud.login("ann-1")
    kube = Kube()
    kube.get(raycluster_path(cloud.namespace))
    cloud.standin.fault("expire", token="ann-1")
    cloud.login("ann-2")
    assert kube.get(raycluster_path(cloud.namespace))["kind"] == "RayClusterList"


PLUGIN = """#!{python}
import json, pathlib, time
count = pathlib.Path({count!r})
count.write_text(str(int(count.read_text() or 0) + 1) if count.exists() else "1")
if pathlib.Path({broken!r}).exists():
    raise SystemExit("the session has ended")
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "admintok"}}}}))
"""


def test_a_credential_plugin_is_run_once_and_its_failure_is_reported(
    cloud: Cloud, tmp_path: Path
) -> None:
    count, broken, plugin = (
        tmp_path / "count",
        tmp_path / "broken",
        tmp_path / "gke-gcloud-auth-plugin",
    )
    plugin.write_text(PLUGIN.format(python=sys.executable, count=str(count), broken=str(broken)))
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    cloud.standin.kubeconfig(
        cloud.kubeconfig, namespace=cloud.namespace, exec_command=[str(plugin)]
    )
    kube = Kube()
    for _ in range(3):
        kube.get(raycluster_path(cloud.namespace))
    assert count.read_text() == "1"
    broken.touch()
    with pytest.raises(
        KubeError, match="gke-gcloud-auth-plugin of context standin failed"
    ) as caught:
        Kube().get(raycluster_path(cloud.namespace))
    assert "gcloud auth login" in caught.value.remedy


def test_a_proxy_of_the_environment_leaves_out_what_it_names(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "api.inside")
    assert Kube().get(raycluster_path(cloud.namespace))["kind"] == "RayClusterList"
    text = cloud.kubeconfig.read_text()
    cloud.kubeconfig.write_text(text.replace(cloud.standin.url, "https://api.inside:6443"))
    assert Kube().proxy is None
    cloud.kubeconfig.write_text(text.replace(cloud.standin.url, "https://api.outside:6443"))
    assert Kube().proxy == "http://127.0.0.1:9"


@pytest.mark.parametrize("code", [502, 503, 504])
def test_a_server_that_is_away_for_a_moment_is_asked_again(cloud: Cloud, code: int) -> None:
    """Behind a load balancer the next one answers."""
    kube, path = Kube(), raycluster_path(cloud.namespace)
    with cloud.standin.faulty("error", path="rayclusters", code=code, count=2):
        assert kube.get(path)["kind"] == "RayClusterList"
    # What may have been done is not done twice.
    with (
        cloud.standin.faulty("error", path="rayclusters", code=code, count=1),
        pytest.raises(KubeUnreachable),
    ):
        kube.create(path, cloud.template().model_dump())


def test_nobody_answers(cloud: Cloud) -> None:
    kube = Kube()
    with cloud.standin.faulty("503", path="rayclusters"), pytest.raises(KubeUnreachable):
        kube.get(raycluster_path(cloud.namespace))
    text = cloud.kubeconfig.read_text().replace(cloud.standin.url, "https://127.0.0.1:1")
    cloud.kubeconfig.write_text(text)
    with pytest.raises(KubeUnreachable, match="cannot be reached") as caught:
        cloud.provider.up(cloud.template(), wait=False)
    assert "VPN" in caught.value.remedy
    assert caught.value.status == 503


def test_a_certificate_that_is_not_trusted(cloud: Cloud, tmp_path: Path) -> None:
    import trustme

    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    text = cloud.kubeconfig.read_text().replace(str(cloud.standin.ca_file), str(other))
    cloud.kubeconfig.write_text(text)
    with pytest.raises(KubeUnreachable, match="certificate that is not trusted") as caught:
        cloud.provider.up(cloud.template(), wait=False)
    assert "certificate-authority" in caught.value.remedy


def test_a_server_whose_certificate_is_not_verified_is_reported(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    text = cloud.kubeconfig.read_text()
    trusted = f"certificate-authority: {cloud.standin.ca_file}"
    assert trusted in text
    cloud.kubeconfig.write_text(text.replace(trusted, "insecure-skip-tls-verify: true"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert Kube().list(raycluster_path(cloud.namespace))[0] == []
    said = [each.getMessage() for each in caplog.records if "not verified" in each.getMessage()]
    assert len(said) == 1
    assert cloud.standin.url in said[0]
    assert "certificate-authority" in said[0]


def test_a_client_certificate(cloud: Cloud, tmp_path: Path) -> None:
    cloud.standin.user("carl", "unused", [PolicyRule(RAY, ("rayclusters",), ("list",))])
    cloud.standin.kubeconfig(cloud.kubeconfig, namespace=cloud.namespace, client_name="carl")
    assert Kube().list(raycluster_path(cloud.namespace))[0] == []


def test_429_is_waited_out(cloud: Cloud) -> None:
    cloud.standin.fault("429", path="rayclusters", count=2, retry_after=0)
    began_s = time.monotonic()
    Kube().get(raycluster_path(cloud.namespace))
    assert time.monotonic() - began_s < 5


def test_an_older_crd_without_token_authentication(cloud: Cloud, tmp_path: Path) -> None:
    """As of KubeRay 1.4: the head gets its token from a Secret that we make ourselves."""
    with StandIn() as older:
        older.install_crd(without_auth())
        older.create_namespace("ml")
        older.kubeconfig(cloud.kubeconfig, context="older", namespace="ml")
        cloud.provider.up(cloud.template(contexts=["older"]), wait=False)
        _check_own_token(older)
        # Where the CRD may not be read, a dry run tells.
        _may_all_but_crds(older)
        older.kubeconfig(cloud.kubeconfig, context="older", namespace="ml", token="dan-token")
        cloud.provider.up(cloud.template("two", contexts=["older"]), wait=False)
        with older.client() as http:
            found = http.get("/apis/ray.io/v1/namespaces/ml/rayclusters/two").json()
        assert "authOptions" not in found["spec"]


def _check_own_token(older: StandIn) -> None:
    with older.client() as http:
        found = http.get("/apis/ray.io/v1/namespaces/ml/rayclusters/one").json()
        secret = http.get("/api/v1/namespaces/ml/secrets/one").json()
    assert "authOptions" not in found["spec"]
    assert len(base64.b64decode(secret["data"]["auth_token"])) >= 32
    assert secret["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]


def without_auth() -> dict[str, Any]:
    import gzip

    crd = json.loads(gzip.decompress(CRD_FILE.read_bytes()))
    for version in crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"].pop("authOptions", None)
    return crd


def _may_all_but_crds(older: StandIn) -> None:
    resources = ("rayclusters", "configmaps", "secrets", "pods", "events", "namespaces")
    older.user("dan", "dan-token", [PolicyRule(("", "ray.io"), resources, ("*",))])
    with older.client(token="dan-token") as http:
        assert http.get(RAYCLUSTER_CRD).status_code == 403


def test_without_a_kubeconfig_nothing_is_asked_and_nothing_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(tmp_path / "absent"))
    provider = KubeRayProvider(tmp_path)
    assert provider.names() == ()
    assert provider.list() == []
    with pytest.raises(ClusterNotFoundError, match="no kubeconfig is found") as caught:
        provider.get("one")
    assert isinstance(caught.value, LLMOpsError)
