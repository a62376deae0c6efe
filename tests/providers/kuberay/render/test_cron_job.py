"""A schedule as a CronJob: by Kubernetes' own schema, without secrets and without a shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client as official
import pytest
import yaml

from llmops_kernel.errors import ClusterStateError, ConfigError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.schedule_source import new_schedule, pin, render
from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.render.crd_schema import pod_faults
from tests.services.schedules.repository import commit, git, init, write_notebook
from tests.tiny_training import write_training

URL = "https://git.example.org/team/training.git"
TEMPLATE = """\
name: lab
provider: kuberay
namespace: ml
image: registry.example/train:1
service_account: trainer
image_pull_secrets: [registry]
head: {node_selector: {pool: cpu}}
worker_groups: [{name: w, cpus: 2, memory: 4Gi}]
secrets: [{secret: huggingface, key: token, env: HF_TOKEN}, {secret: all}]
env: {HF_HOME: /tmp/hf}
"""
Render = Callable[..., dict[str, Any]]


@pytest.fixture
def repository(tmp_path: Path, home: Path) -> Path:
    folder = init(tmp_path / "user")
    write_training(folder / "configs", "tiny")
    write_notebook(folder / "report.ipynb", "word = 1")
    commit(folder)
    git(folder, "remote", "add", "origin", URL)
    (tmp_path / "lab.yaml").write_text(TEMPLATE)
    return folder


@pytest.fixture
def rendered(repository: Path, tmp_path: Path, home: Path) -> Render:
    def rendered(file: str, **options: Any) -> dict[str, Any]:
        backend, to_add = (
            Backend(store=RunStore(home)),
            {k: options.pop(k) for k in ("changes",) if k in options},
        )
        new_schedule(backend, "nightly", repository / file, cron="0 2 * * 1-5", **to_add)
        if options.pop("pinned", False):
            pin(backend, "nightly", revision="HEAD")
        options = {"cluster": str(tmp_path / "lab.yaml"), **options}
        manifest: dict[str, Any] = yaml.safe_load(render(backend, "nightly", **options))
        return manifest

    return rendered


def faults(value: Any, type_name: str, path: str = "") -> Iterator[str]:
    """Check against the models that Kubernetes' client has from its OpenAPI description."""
    if outer := re.fullmatch(r"[Ll]ist\[(.*)\]", type_name):
        for number, each in enumerate(value):
            yield from faults(each, outer[1], f"{path}[{number}]")
    elif outer := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", type_name):
        for key, each in value.items():
            yield from faults(each, outer[1], f"{path}.{key}")
    elif isinstance(value, Mapping):
        model = getattr(official, type_name)
        names = {shown: own for own, shown in model.attribute_map.items()}
        for key, each in value.items():
            if key not in names:
                yield f"{path}.{key}: unknown"
                continue
            yield from faults(each, model.openapi_types[names[key]], f"{path}.{key}")
        model(**{names[key]: each for key, each in value.items() if key in names})  # Required ones.
    elif type(value).__name__ != type_name:
        yield f"{path}: {value!r} is no {type_name}"


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


def commands(manifest: dict[str, Any]) -> list[list[str]]:
    pod = pod_of(manifest)
    return [[*each["command"], *each["args"]] for each in pod["initContainers"] + pod["containers"]]


@pytest.mark.parametrize(
    "options", [{}, {"pinned": True}, {"git_secret": "git", "claim": "runs", "image": "own:2"}]
)
def test_kubernetes_takes_it(rendered: Render, options: dict[str, Any]) -> None:
    manifest = rendered("configs/tiny.train.yaml", **options)
    assert [*faults(manifest, "V1CronJob")] == []
    assert pod_faults(pod_of(manifest)) == []
    spec, pod = manifest["spec"], pod_of(manifest)
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == (
        *("0 2 * * 1-5", "UTC"),
        "Forbid",
    )
    assert spec["startingDeadlineSeconds"] == 3600
    assert manifest["metadata"]["namespace"] == "ml"
    assert pod["securityContext"]["runAsNonRoot"] is True
    for each in pod["initContainers"] + pod["containers"]:
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["image"] == options.get("image", "registry.example/train:1")
        plain = {e["name"] for e in each["env"] if "value" in e}
        assert "HF_TOKEN" not in plain
    (token,) = [e for e in pod["containers"][0]["env"] if e["name"] == "HF_TOKEN"]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "huggingface", "key": "token"}}


def test_it_submits_the_branch(rendered: Render) -> None:
    words = "optimizer.learning_rate=1e-4", "data.train=$(HF_TOKEN); rm -rf /"
    manifest = rendered("configs/tiny.train.yaml", changes=words)
    assert commands(manifest) == [
        ["git", "clone", "--depth=1", "--branch=main", "--", URL, "/llmops/code"],
        [
            *("llmops", "submit", "--follow", "--cluster", "lab", "--group", "nightly"),
            *("--workspace", "/llmops/code/configs", "/llmops/code/configs/tiny.train.yaml"),
            "optimizer.learning_rate=1e-4",
            "data.train=$$(HF_TOKEN); rm -rf /",  # Neither a shell nor Kubernetes reads it.
        ],
    ]


def test_it_executes_a_notebook_of_a_pinned_revision(rendered: Render, repository: Path) -> None:
    manifest = rendered("report.ipynb", pinned=True, changes=["word=[1, 2]"])
    revision = git(repository, "rev-parse", "HEAD")
    assert commands(manifest) == [
        ["git", "clone", "--no-checkout", "--", URL, "/llmops/code"],
        ["git", "-C", "/llmops/code", "checkout", "--detach", revision],
        [
            *(
                "python",
                "-m",
                "papermill",
                "/llmops/code/report.ipynb",
                "/llmops/home/$(POD_NAME).ipynb",
            ),
            *("--cwd", "/llmops/code", "--parameters_yaml", "word:\n- 1\n- 2\n"),
        ],
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "https://user:hunter2@git.example.org/x"}, ConfigError),
        ({"cluster": "local"}, ClusterStateError),
    ],
)
def test_what_a_pod_cannot_do_is_refused(
    rendered: Render, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        rendered("report.ipynb", **options)
    assert "hunter2" not in str(raised.value)
