"""Shipped templates, edits and the Role, against an API server that validates strictly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.templates import load_cluster_template, shipped
from llmops_kernel.providers.kuberay.render.manifest import render
from tests.cli.conftest import Llmops, call
from tests.k8s.standin.process import StandIn

FOLDER = Path(__file__).parents[3] / "cluster_templates"
SMALL = """\
provider: kuberay
image: rayproject/ray:2.60.0
worker_groups:
  - {name: cpu, cpus: 1, memory: 2Gi, max_replicas: 4}
"""


@pytest.fixture
def llmops(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Llmops:
    """The command line of somebody with contexts of these names."""
    config = standin.kubeconfig(tmp_path / "config", namespace=namespace)
    for path in shipped().values():
        template = load_cluster_template(path)
        assert isinstance(template, KubeRayTemplate)
        for context in template.contexts:
            standin.kubeconfig(config, context=context, namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster_templates").mkdir()
    return call


def write(name: str, text: str) -> None:
    Path("cluster_templates", f"{name}.yaml").write_text(text)


def live(standin: StandIn, namespace: str, name: str) -> dict[str, Any]:
    with standin.client() as client:
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}"
        found: dict[str, Any] = client.get(path).raise_for_status().json()
        return found


def create(standin: StandIn, namespace: str, name: str, *, manager: str = "llmops") -> None:
    template = load_cluster_template(name)
    assert isinstance(template, KubeRayTemplate)
    manifest = render(template, namespace=namespace)
    with standin.client() as client:
        for body in (manifest.raycluster, *manifest.companions):
            group = "apis/ray.io/v1" if body["kind"] == "RayCluster" else "api/v1"
            path = f"/{group}/namespaces/{namespace}/{body['kind'].lower()}s"
            params = {"fieldValidation": "Strict", "fieldManager": manager}
            answer = client.post(path, json=body, params=params)
            assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_template_is_taken_with_strict_validation(
    name: str, llmops: Llmops, namespace: str, capsys: pytest.CaptureFixture[str]
):
    assert llmops("cluster", "render", name, "--dry-run=server", "--namespace", namespace) == 0
    printed = capsys.readouterr()
    assert "Accepted by the API server" in printed.err
    raycluster, config_map = yaml.safe_load_all(printed.out)
    assert raycluster["metadata"]["name"] == name
    assert config_map["kind"] == "ConfigMap"


def test_a_dry_run_makes_nothing_and_fits_a_cluster_that_is_there(
    llmops: Llmops, standin: StandIn, namespace: str
):
    write("small", SMALL)
    arguments = ("cluster", "render", "small", "--dry-run=server")
    assert llmops(*arguments) == 0
    with standin.client() as client:
        listed = client.get(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters").json()
    assert listed["items"] == []
    create(standin, namespace, "small")
    assert llmops(*arguments) == 0
    assert live(standin, namespace, "small")["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("{idleSuspend: true}", r"spec\.idleSuspend"),
        (
            "{headGroupSpec: {template: {spec: {contaners: []}}}}",
            r"spec\.headGroupSpec\.template\.spec\.contaners",
        ),
    ],
)
def test_what_the_server_refuses_is_reported_field_by_field(
    raw: str, says: str, llmops: Llmops, capsys: pytest.CaptureFixture[str]
):
    write("small", f"{SMALL}raycluster: {raw}\n")
    assert llmops("cluster", "render", "small", "--dry-run=server") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(says, printed.err)
    assert "Traceback" not in printed.err


def test_an_edit_is_reported_and_then_applied(
    llmops: Llmops, standin: StandIn, namespace: str, capsys: pytest.CaptureFixture[str]
):
    write("small", SMALL)
    create(standin, namespace, "small")
    assert llmops("cluster", "diff", "small") == 0
    assert "nothing changes" in capsys.readouterr().out
    write("small", SMALL.replace("max_replicas: 4", "replicas: 3, max_replicas: 4"))
    assert llmops("cluster", "diff", "small", "--json") == 0
    effect = json.loads(capsys.readouterr().out)
    assert effect["kind"] == "live"
    assert effect["sentence"] == "nothing restarts: group cpu: replicas 1 -> 3"
    assert llmops("cluster", "apply", "small") == 0
    now = live(standin, namespace, "small")
    assert now["spec"]["workerGroupSpecs"][0]["replicas"] == 3
    assert now["metadata"]["generation"] == 2
    assert llmops("cluster", "apply", "small") == 0
    assert live(standin, namespace, "small")["metadata"]["generation"] == 2


def test_an_edit_that_costs_the_head_needs_a_yes(
    llmops: Llmops, standin: StandIn, namespace: str, capsys: pytest.CaptureFixture[str]
):
    recreate = SMALL + "raycluster: {upgradeStrategy: {type: Recreate}}\n"
    write("small", recreate)
    create(standin, namespace, "small")
    write("small", recreate + "env: {A: b}\n")
    assert llmops("cluster", "apply", "small") == 1
    printed = capsys.readouterr().err
    assert "deletes the head" in printed
    assert "--yes" in printed
    assert live(standin, namespace, "small")["metadata"]["generation"] == 1
    assert llmops("cluster", "apply", "small", "--yes") == 0
    assert live(standin, namespace, "small")["metadata"]["generation"] == 2


def test_what_cannot_be_changed_is_not_tried(
    llmops: Llmops, standin: StandIn, namespace: str, capsys: pytest.CaptureFixture[str]
):
    write("small", SMALL + "managed_by: ray.io/kuberay-operator\n")
    create(standin, namespace, "small")
    write("small", SMALL + "queue: q\nmanaged_by: kueue.x-k8s.io/multikueue\n")
    assert llmops("cluster", "apply", "small", "--yes") == 1
    assert "managedBy cannot be changed" in capsys.readouterr().err
    assert live(standin, namespace, "small")["metadata"]["generation"] == 1


def test_the_role_is_enough_and_the_least(standin: StandIn, namespace: str):
    role, binding = yaml.safe_load_all((FOLDER / "rbac.yaml").read_text())
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert "*" not in json.dumps(role["rules"])
    binding["subjects"] = [{"kind": "User", "name": "ml"}]
    standin.user("ml", "mltok")
    for body in (role, binding):
        body["metadata"]["namespace"] = namespace
        standin.put(body)
    clusters = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
    core = f"/api/v1/namespaces/{namespace}"
    with standin.client("mltok") as client:
        for allowed in (clusters, f"{core}/pods", f"{core}/events", f"{core}/resourcequotas"):
            assert client.get(allowed).status_code == 200, allowed
        assert client.get(f"{core}/secrets/small").status_code == 404
        assert client.get(f"{core}/services/a:dashboard/proxy/x").status_code in (404, 503)
        policies = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        policy = {"metadata": {"name": "small-pods"}, "spec": {"podSelector": {}}}
        assert client.post(policies, json=policy).status_code == 201
        assert client.delete(f"{policies}/small-pods").status_code == 403
        assert client.get(f"{core}/secrets").status_code == 403
        assert client.get("/api/v1/nodes").status_code == 403
        assert client.get("/apis/ray.io/v1/rayclusters").status_code == 403
        assert client.delete(f"{core}/pods/x").status_code == 403
