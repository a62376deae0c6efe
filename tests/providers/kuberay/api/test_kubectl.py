from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.providers.kuberay.api.errors import error_of
from llmops_kernel.providers.kuberay.api.paths import IN_CLUSTER, INSTALL_KUBERAY, with_scope


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("wait", "wait"),
        (
            "`kubectl describe pod p` shows more",
            "`kubectl --context gcp -n ml describe pod p` shows more",
        ),
        ("`kubectl describe node n`", "`kubectl --context gcp describe node n`"),
        ("`kubectl create namespace ml`", "`kubectl --context gcp create namespace ml`"),
        ("`kubectl config use-context gcp`", "`kubectl config use-context gcp`"),
        ("`kubectl --context a get pods`", "`kubectl --context a get pods`"),
    ],
)
def test_commands_name_the_context_and_the_namespace(remedy: str, expected: str) -> None:
    assert with_scope(remedy, context="gcp", namespace="ml") == expected


def test_an_installation_of_kuberay_adds_its_repository_first() -> None:
    text = with_scope(INSTALL_KUBERAY, context="gcp")
    assert text.index("helm repo add kuberay ") < text.index("helm install --kube-context gcp ")


def test_a_name_of_a_context_is_quoted() -> None:
    text = with_scope("`kubectl get pods`", context="my context")
    assert text == "`kubectl --context 'my context' get pods`"


def test_a_pod_without_a_kubeconfig_has_no_context_to_name() -> None:
    text = with_scope("`kubectl get pods`", context=IN_CLUSTER, namespace="ml")
    assert text == "`kubectl -n ml get pods`"


def test_errors_of_the_api_server_name_the_cluster_that_they_are_about() -> None:
    body = {
        "kind": "Status",
        "message": "pods is forbidden: error looking up service account: serviceaccount"
        ' "trainer" not found',
    }
    error = error_of(403, body, method="POST", path="/api/v1/namespaces/ml/pods", context="gcp-us")
    assert "`kubectl --context gcp-us -n ml create serviceaccount trainer`" in error.remedy


def test_the_rules_for_an_administrator_are_named_by_a_path_that_exists() -> None:
    body = {
        "kind": "Status",
        "message": 'rayclusters.ray.io is forbidden: User "eve" cannot list resource "rayclusters"'
        ' in API group "ray.io" in the namespace "ml"',
    }
    error = error_of(403, body, method="GET", path="/apis/ray.io/v1/rayclusters", context="gcp")
    named = error.remedy.rpartition("rule 1 of ")[2]
    assert Path(named.removesuffix(" grants it")).is_file()
