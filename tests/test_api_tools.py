"""`llmops.init`, `init_cluster_template`, `doctor`, `demo` and `bench`: commands as functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ConfigError
from tests.benchmarks.presets import Preset, write_workspace
from tests.configs import load_training_config

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import ClusterInfo


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_config_that_can_be_read(home: Path) -> None:
    path = llmops.init("my.train.yaml", model="tiny-llama", data="rows.jsonl", method="full")
    assert path == Path("my.train.yaml")
    config = load_training_config(path)
    assert (config.model.id, config.data.train, config.method.type) == (
        *("tiny-llama", "rows.jsonl"),
        "full",
    )


def test_init_overwrites_only_when_forced(home: Path) -> None:
    first = llmops.init(home / "a.train.yaml")
    with pytest.raises(ConfigError, match="already exists") as caught:
        llmops.init(first, method="full")
    assert "force=True" in caught.value.remedy
    llmops.init(first, method="full", force=True)
    assert load_training_config(first).method.type == "full"


def test_a_new_cluster_template_is_one_that_up_can_read(home: Path) -> None:
    path = llmops.init_cluster_template("team-a", kind="kuberay")
    assert path == Path("cluster_templates/team-a.yaml")
    assert "kind: RayCluster" in llmops.render("team-a")
    with pytest.raises(ConfigError, match="already exists"):
        llmops.init_cluster_template("team-a")
    own = llmops.init_cluster_template("mine.yaml", kind="local")
    assert "provider: local" in own.read_text()
    with pytest.raises(ConfigError, match="no cluster template 'gcp-h1000'"):
        llmops.init_cluster_template("b", kind="gcp-h1000")


def test_doctor_returns_a_report_with_its_findings(home: Path) -> None:
    report = llmops.doctor()
    assert {finding.name for finding in report.findings} >= {"memory", "Ray", "versions"}
    assert report.is_ok == (not report.failed)
    assert json.loads(json.dumps(report.as_dict()))["run"] is None
    assert "memory" in repr(report)


def test_demo_needs_a_workspace_with_its_config(home: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        llmops.demo(home)


def test_bench_refuses_a_broken_config(home: Path) -> None:
    (home / "a.train.yaml").write_text("model: tiny-llama\nnonsense: 1\n")
    with pytest.raises(ConfigError, match="nonsense"):
        llmops.bench("a.train.yaml")


@pytest.mark.ray
@pytest.mark.slow
def test_bench_measures_a_config(ray_cluster: ClusterInfo, tmp_path: Path) -> None:
    config = write_workspace(Preset.TINY, tmp_path)
    lines: list[str] = []
    figures = llmops.bench(
        *(config, ["parallelism.num_workers=1"]),
        cluster=ray_cluster.name,
        runs=1,
        kinds=["warm"],
        progress=lines.append,
    )
    assert len(figures.warm.runs_s) == 1, lines
    assert figures.cold.runs_s == ()
    assert figures.ratio is None


@pytest.mark.ray
@pytest.mark.slow
def test_demo_returns_a_run_of_its_cluster(tmp_path: Path, home: Path) -> None:
    workspace = home / "demo"
    workspace.mkdir()
    (workspace / "rows.jsonl").write_text('{"text": "a b c"}\n' * 8)
    (workspace / "lora.train.yaml").write_text(
        "model: tiny-llama\ndata: rows.jsonl\nparallelism: {num_workers: 1}\n"
    )
    try:
        run = llmops.demo(workspace, max_steps=2)
        assert run.wait(300) == "SUCCEEDED", run.logs()
        assert run.view.last_step == 2
    finally:
        llmops.down("local")
