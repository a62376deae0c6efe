"""What a run changes in a config's values, and defaults that depend on others."""

import tomllib
from pathlib import Path

import pytest

from llmops_kernel.config.assist import examine
from llmops_kernel.config.assist.file_kinds import TRAIN
from llmops_kernel.config.assist.template import training_template
from llmops_kernel.version import SUPPORTED_RAY
from tests.configs import load_training_config, training_config_from_dict

BASE = {"model": "tiny-llama", "data": "rows.jsonl"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("warmup", "max_steps", "used"),
    [(5, 4, 3), (4, 4, 3), (3, 4, 3), (0, 4, 0), (5, 1, 0), (5, None, 5)],
)
def test_warm_up_is_limited_to_the_run_with_a_warning(warmup, max_steps, used):
    config = training_config_from_dict(
        {**BASE, "optimizer": {"warmup_steps": warmup}, "training": {"max_steps": max_steps}}
    )
    assert config.warmup_steps == used
    assert config.optimizer.warmup_steps == warmup
    warnings = [f"{one.path}: {one.message}" for one in config.advice()]
    wanted = (
        f"optimizer.warmup_steps: {warmup} warm-up steps do not fit into a run of"
        f" max_steps={max_steps}: {used} are used"
    )
    assert warnings == ([wanted] if warmup != used else [])


def test_editors_receive_the_warning():
    text = "model: a\ndata: b\ntraining: {max_steps: 4}\noptimizer: {warmup_steps: 5}\n"
    found = examine(TRAIN, text)
    assert found.problems == []
    assert [warning.path for warning in found.warnings] == ["optimizer.warmup_steps"]


@pytest.mark.parametrize(
    ("parallelism", "strategy"),
    [
        ({}, "ddp"),
        (None, "ddp"),
        ("auto", "ddp"),
        ({"num_workers": 1}, "ddp"),
        ({"num_workers": 2}, "zero2"),
        ({"num_workers": 2, "strategy": "auto"}, "zero2"),
        ({"num_workers": 2, "strategy": "ddp"}, "ddp"),
        ({"num_workers": 1, "strategy": "zero3"}, "zero3"),
        ({"offload_optimizer": True}, "zero2"),
        ("zero3", "zero3"),
    ],
)
def test_one_worker_gets_ddp_and_several_zero2(parallelism, strategy):
    config = training_config_from_dict({**BASE, "parallelism": parallelism})
    assert config.parallelism.strategy == strategy
    assert training_config_from_dict(config.model_dump(mode="json")) == config


def test_a_new_config_names_ddp():
    assert "\n  strategy: ddp\n" in training_template()


@pytest.mark.parametrize("file", sorted(ROOT.glob("notebooks/*.train.yaml")), ids=lambda f: f.name)
def test_shipped_configs_of_one_worker_need_no_deepspeed(file):
    parallelism = load_training_config(file).parallelism
    assert parallelism.num_workers > 1 or parallelism.strategy == "ddp"


def test_the_supported_ray_is_the_pinned_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    pins = {one for group in groups for one in group if one.startswith(("ray=", "ray["))}
    assert {pin.partition("==")[2] for pin in pins} == {SUPPORTED_RAY}
