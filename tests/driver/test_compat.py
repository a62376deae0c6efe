"""Ray's private names exist on the supported release; without them Ray's own trainer trains."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.driver import compat
from llmops_kernel.driver.ray_job import JOB_CONFIG_ENV_VAR
from llmops_kernel.store.record import RunSpec
from llmops_kernel.version import SUPPORTED_RAY


def without(module: str) -> compat.Load:
    """A loader that finds an empty module by that name, as after a rename in Ray."""

    def load(name: str) -> Any:
        return types.ModuleType(name) if name == module else importlib.import_module(name)

    return load


def test_this_ray_has_every_private_name_that_we_use() -> None:
    assert compat.CHECKED_ON == SUPPORTED_RAY
    every = [
        *compat.TRAIN.values(),
        *compat.CORE.values(),
        *compat.QUEUE.values(),
        *compat.SCRIPT.values(),
    ]
    assert compat.missing(every) == []
    assert compat.get(JOB_CONFIG_ENV_VAR) == JOB_CONFIG_ENV_VAR


def test_each_name_says_what_it_is_for_and_what_happens_without_it() -> None:
    for name in (
        *compat.TRAIN.values(),
        *compat.CORE.values(),
        *compat.QUEUE.values(),
        *compat.SCRIPT.values(),
    ):
        assert name.use
        assert name.without


def test_lost_workers_are_recognized_by_the_classes_of_this_ray() -> None:
    from ray.train.v2._internal import exceptions

    assert all(hasattr(exceptions, name) for name in compat.LOST_WORKER)
    assert not compat.is_lost_worker(RuntimeError("no"))


def test_a_renamed_class_and_a_removed_module_are_both_missing() -> None:
    path = "ray.train.v2._internal.execution.failure_handling"
    lacking = compat.missing(load=without(path))
    assert lacking == [f"{path}:DefaultFailurePolicy", f"{path}:FailureDecision"]

    def load(name: str) -> Any:
        raise ModuleNotFoundError(name)

    assert len(compat.missing(load=load)) == len(compat.TRAIN)


def test_a_method_that_we_override_must_exist() -> None:
    """Else the override would be dead code, and a run would start actors that it does not need."""
    stub = types.ModuleType("stub")
    stub.TorchTrainer = type("TorchTrainer", (), {"_create_default_callbacks": None})  # type: ignore[attr-defined]

    def load(name: str) -> Any:
        return stub if name == "ray.train.torch" else importlib.import_module(name)

    lacking = compat.missing(load=load)
    assert lacking == ["ray.train.torch:TorchTrainer._initialize_and_run_controller"]


@pytest.fixture
def spec(make_config: Callable[..., Any], workspace: Path, tmp_path: Path) -> RunSpec:
    config = make_config(training={"max_steps": 2}, parallelism={"strategy": "ddp"})
    return RunSpec(
        run_id="stock",
        attempt=1,
        config=config.model_dump(mode="json"),
        run_root=str(tmp_path / "run"),
        workspace_root=str(workspace),
        submitted_s=0.0,
    )


def train(spec: RunSpec, *missing: str) -> dict[str, Any]:
    """Train with a Ray of its own, in a process of its own."""
    line = [sys.executable, "-m", "tests.train.ray.stock_driver", spec.model_dump_json(), *missing]
    done = subprocess.run(
        line,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
def test_the_stock_trainer_trains_where_a_private_name_is_missing(spec: RunSpec) -> None:
    report = train(spec, "ray.train.v2._internal.execution.failure_handling")
    assert report["trainer"] == "TorchTrainer"
    assert "TorchTrainer" in report["warning"]
    assert report["result"] == {"last_step": 2, "stopped": False}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
@pytest.mark.nightly
def test_our_trainer_trains_where_none_is_missing(spec: RunSpec) -> None:
    report = train(spec)
    assert (report["trainer"], report["warning"]) == ("RunTrainer", "")
    assert report["result"] == {"last_step": 2, "stopped": False}
