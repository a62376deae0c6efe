"""`llmops.plan` and `llmops.plan_grid` as a notebook has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from tests.metrics.test_flops import CONFIGS


@pytest.fixture
def config(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "a<b>").mkdir()
    (tmp_path / "a<b>" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-7B"]))
    return {
        "name": "planned",
        "model": "a<b>",
        "data": {"train": "rows.jsonl", "max_length": 2048},
        "training": {"micro_batch_size": 2, "global_batch_size": 16, "max_steps": 10},
    }


def test_a_plan_is_text_table_and_picture(config: dict[str, Any]) -> None:
    plan = llmops.plan(
        config, what_if=["data.max_length=4096", ["method.r=64"]], cluster="gcp-h100"
    )
    assert plan.fits is True
    assert "6.74 billion weights" in repr(plan)
    html = plan._repr_html_()
    assert "data:image/png;base64," in html
    assert "max_length=4096" in html
    frame = plan.to_frame()
    assert list(frame.index) == ["as it is", "max_length=4096", "r=64"]
    parts = [name for name in frame if name.startswith("memory.")]
    assert frame[parts].sum(axis=1).to_list() == pytest.approx(frame["memory"].to_list())
    assert frame["memory.activations"].iloc[1] > frame["memory.activations"].iloc[0]
    assert plan.fastest is not None


def test_a_grid_has_each_combination(config: dict[str, Any]) -> None:
    grid = llmops.plan_grid(
        config,
        {"method.type": ["lora", "qlora"], "training.micro_batch_size": [1, 2]},
        cluster="gcp-h100",
        mean_length=500,
    )
    assert len(grid.plans) == 4
    assert grid.to_frame()["memory.weights"].is_monotonic_decreasing


def test_mistakes_are_our_errors(config: dict[str, Any]) -> None:
    with pytest.raises(llmops.ConfigError):
        llmops.plan(config, ["training.micro_batch=2"])
    with pytest.raises(TypeError):
        llmops.plan(config, devise="H100")
