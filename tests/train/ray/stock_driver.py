"""Trains a RunSpec with Ray Train and prints the result as JSON: `... SPEC [missing module]`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import ray
from ray.train import RunConfig, ScalingConfig

from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.nodes import NodeHolds
from llmops_kernel.driver.queue_watch import QueueWatch
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.ray.trainer import make_trainer
from llmops_kernel.train.ray.worker import run_worker


def load(name: str) -> Any:
    """Import a module; the missing one is empty, as after a rename in Ray."""
    return types.ModuleType(name) if name in sys.argv[2:] else importlib.import_module(name)


def main() -> None:
    spec = RunSpec.model_validate_json(sys.argv[1])
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
    )
    trainer, warning = make_trainer(
        spec,
        run_worker,
        holds=NodeHolds(lambda _: None),
        queue=QueueWatch(lambda _: None),
        load=load,
        train_loop_config={"spec": spec.model_dump_json(), "use_gpu": False},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(storage_path=str(Path(spec.run_root) / "ray")),
    )
    trainer.fit()
    report = {
        "trainer": type(trainer).__name__,
        "warning": warning.message if warning else "",
        "result": kv.get(kv.key(spec.run_id, spec.attempt, "result")),
    }
    print(json.dumps(report))
    ray.shutdown()


if __name__ == "__main__":
    main()
