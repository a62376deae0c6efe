"""TLS of a rendered cluster: who sees which key, and where the certificates come from."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.kuberay.api.paths import object_path
from llmops_kernel.providers.kuberay.render.manifest import Manifest, render
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.render.crd_schema import faults

GROUP = {"name": "w", "cpus": 2, "memory": "4Gi", "image": "other:1"}

# As much of cert-manager's as an API server needs to take one.
CERTIFICATES: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "certificates.cert-manager.io"},
    "spec": {
        "group": "cert-manager.io",
        "names": {"kind": "Certificate", "plural": "certificates"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            }
                        },
                    }
                },
            }
        ],
    },
}


def made(**data: Any) -> Manifest:
    template = {"name": "lab", "image": "i", "worker_groups": [GROUP]} | data
    return render(KubeRayTemplate.model_validate(template), namespace="ml")


def pods(manifest: Manifest) -> list[dict[str, Any]]:
    spec = manifest.raycluster["spec"]
    groups = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    return [group["template"]["spec"] for group in groups]


def test_each_pod_makes_a_certificate_before_ray_starts() -> None:
    manifest = made(tls={"secret": "team-ca"}, autoscaling=True)
    assert faults(manifest.raycluster) == []
    for pod, image in zip(pods(manifest), ("i", "other:1"), strict=True):
        (first,) = pod["initContainers"]
        assert first["image"] == image
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["llmops-ca"]["secret"] == {"secretName": "team-ca"}
        # The authority's key is for the init container only.
        mounted = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
        assert "llmops-tls" in mounted
        assert "llmops-ca" not in mounted
        env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        assert env["RAY_USE_TLS"] == "1"
        assert env["RAY_TLS_CA_CERT"] == "/etc/llmops-tls/ca.crt"
    # The autoscaler asks Ray's head as well.
    options = manifest.raycluster["spec"]["autoscalerOptions"]
    assert {"name": "RAY_USE_TLS", "value": "1"} in options["env"]
    assert options["volumeMounts"][0]["name"] == "llmops-tls"


def test_an_issuer_signs_the_authority_of_this_cluster() -> None:
    manifest = made(tls={"issuer": "org", "issuer_kind": "ClusterIssuer"})
    certificate = manifest.companions[-1]
    assert object_path(certificate) == (
        "/apis/cert-manager.io/v1/namespaces/ml/certificates/lab-tls"
    )
    spec = certificate["spec"]
    assert spec["isCA"] is True
    assert (spec["issuerRef"]["kind"], spec["issuerRef"]["name"]) == ("ClusterIssuer", "org")
    for pod in pods(manifest):
        assert {"name": "llmops-ca", "secret": {"secretName": spec["secretName"]}} in pod["volumes"]


def test_one_source_of_the_authority() -> None:
    with pytest.raises(ValidationError, match="give `secret` or `issuer`, not both"):
        made(tls={"secret": "a", "issuer": "b"})


@pytest.mark.usefixtures("farm")
def test_without_cert_manager_nothing_is_created_and_with_it_the_cluster_owns_it(
    cloud: Cloud,
) -> None:
    template = cloud.template(tls={"issuer": "org"})
    with pytest.raises(LLMOpsError, match="cert-manager"):
        cloud.provider.up(template, wait=False)
    assert cloud.live()["code"] == 404
    cloud.standin.install_crd(CERTIFICATES)
    cloud.provider.up(template, wait=False)
    path = f"/apis/cert-manager.io/v1/namespaces/{cloud.namespace}/certificates/one-tls"
    with cloud.standin.client() as http:
        found = http.get(path).raise_for_status().json()
    (owner,) = found["metadata"]["ownerReferences"]
    assert owner["uid"] == cloud.live()["metadata"]["uid"]
    cloud.standin.remove_crd("certificates", "cert-manager.io")


def test_without_tls_nothing_changes() -> None:
    assert all("initContainers" not in pod for pod in pods(made()))
