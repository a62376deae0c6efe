"""`llmops cluster render | init`, without any Kubernetes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer
import yaml

from llmops_kernel.cli.app import app
from llmops_kernel.cli.clusters.group import SUBCOMMANDS
from llmops_kernel.config.reading.templates import load_cluster_template, shipped
from tests.cli.conftest import Llmops


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return place


@pytest.mark.parametrize("name", ["render", "init", "diff", "apply", "guard", "rights", "rbac"])
def test_help_with_an_example_that_is_understood(
    name: str, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("cluster", name, "--help") == 0
    example = SUBCOMMANDS[name]
    assert f"Example: {example}" in " ".join(capsys.readouterr().out.split())
    words = shlex.split(example.split(">")[0])
    group = typer.main.get_command(app).commands["cluster"]  # type: ignore[attr-defined]
    with group.make_context("cluster", words[2:]) as context:
        group.get_command(context, name).make_context(name, words[3:], parent=context)


def test_a_role_is_rendered_without_any_cluster(
    llmops: Llmops, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("cluster", "rbac", "gcp-h100", "--for", "user:ann", "--namespace", "ml") == 0
    role, binding = yaml.safe_load_all(capsys.readouterr().out)
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "ml")
    assert binding["subjects"][0]["name"] == "ann"


@pytest.mark.parametrize("kind", ["kuberay", *sorted(shipped())])
def test_a_new_template_is_rendered_without_any_cluster(
    kind: str, llmops: Llmops, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("cluster", "init", "my-lab", "--kind", kind) == 0
    assert "Next: llmops cluster render my-lab" in capsys.readouterr().out
    assert load_cluster_template("my-lab").name == "my-lab"
    assert llmops("cluster", "render", "my-lab") == 0
    first = capsys.readouterr().out
    raycluster, config_map = yaml.safe_load_all(first)
    assert (raycluster["kind"], config_map["kind"]) == ("RayCluster", "ConfigMap")
    assert raycluster["metadata"]["name"] == "my-lab"
    assert f"ray.io/cluster: {kind}" not in first
    assert llmops("cluster", "render", "my-lab") == 0
    assert capsys.readouterr().out == first
    assert llmops("cluster", "render", "my-lab", "--raycluster-only", "--namespace", "x") == 0
    (alone,) = yaml.safe_load_all(capsys.readouterr().out)
    assert alone["metadata"]["namespace"] == "x"


def test_a_new_local_template(llmops: Llmops, folder: Path) -> None:
    assert llmops("cluster", "init", "big", "--kind", "local") == 0
    assert load_cluster_template("big").provider == "local"


def test_nothing_is_overwritten_unasked(
    llmops: Llmops, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.yaml").write_text("mine")
    assert llmops("cluster", "init", "mine.yaml") == 1
    assert "--force" in capsys.readouterr().err
    assert (folder / "mine.yaml").read_text() == "mine"
    assert llmops("cluster", "init", "mine.yaml", "--force") == 0
    assert load_cluster_template("mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("init", "4x"), "a letter first"),
        (("init", "lab", "--kind", "gpc-h100"), "did you mean gcp-h100?"),
        (("render", "local"), "llmops cluster init NAME --kind kuberay"),
        (("render", "nowhere"), "there is no cluster template with this name"),
    ],
)
def test_mistakes(
    arguments: tuple[str, ...],
    says: str,
    llmops: Llmops,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert llmops("cluster", *arguments) == 1
    assert says in capsys.readouterr().err
    assert not (folder / "cluster_templates").exists()
