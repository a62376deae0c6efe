"""Train a tiny model on the GPUs of this machine, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
NVME = "{nvme}"
"""Stands for a folder of the test; one on an NVMe disk is given by LLMOPS_TEST_NVME."""


TEXTS = [{"text": f"number {i} follows number {i - 1}"} for i in range(96)]


def sections(config: dict[str, Any], *, workers: int) -> TrainingConfig:
    """Return a case's config with what all have."""
    return TrainingConfig.model_validate(
        {
            **config,
            "model": {"id": "tiny-llama", "dtype": "bfloat16", **config.get("model", {})},
            "data": {"train": "train.jsonl", **config.get("data", {})},
            "parallelism": {**config["parallelism"], "num_workers": workers},
            "optimizer": {"learning_rate": 2e-3},
            "training": {
                "micro_batch_size": 2,
                "global_batch_size": 2 * workers,
                "max_steps": 20,
            },
        }
    )


def trained(
    config: dict[str, Any],
    tmp_path: Path,
    *,
    run: str = "run",
    rows: list[dict[str, Any]] = TEXTS,
    **context: Any,
) -> list[AnyEvent]:
    """Train on all GPUs of this machine, and return the journal; `context`: see WorkerContext."""
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    nvme = os.environ.get("LLMOPS_TEST_NVME", str(tmp_path / "nvme"))
    places = {key: nvme if one == NVME else one for key, one in config["parallelism"].items()}
    checked = sections({**config, "parallelism": places}, workers=GPUS).model_dump(mode="json")
    spec = {"config": checked, "folder": str(tmp_path / run), "workspace": str(tmp_path)}
    (tmp_path / run).mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={GPUS}"]
    command = [
        *launcher,
        "--standalone",
        "-m",
        "tests.gpu.worker",
        json.dumps({**spec, "context": context}),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return FolderTail(tmp_path / run / "journal").read()
