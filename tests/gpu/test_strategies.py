"""What only a GPU can train: run `pytest tests/gpu` on a machine that has one, or several.

These have not been run yet: no machine with a GPU was at hand when they were written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.journal.journal import FolderTail

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
SEVERAL = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
FLASH = pytest.mark.skipif(find_spec("flash_attn") is None, reason="needs flash-attn")


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"method": "qlora", "parallelism": {"strategy": "ddp"}}, {"weights": "nf4"}),
        (
            {"method": "full", "parallelism": {"strategy": "zero3", "offload_optimizer": "cpu"}},
            {"engine": "DeepSpeedEngine, ZeRO-3, optimizer states on cpu"},
        ),
        pytest.param(
            {"method": "full", "parallelism": {"strategy": "fsdp", "offload_params": True}},
            {"engine": "FSDP2"},
            marks=SEVERAL,
        ),
        pytest.param(
            {
                "method": "lora",
                "parallelism": {"strategy": "ddp"},
                "model": {"attention": "flash_attention_2"},
            },
            {"attention": "flash_attention_2"},
            marks=FLASH,
        ),
    ],
    ids=["qlora", "zero3-offload", "fsdp-offload", "flash-attention"],
)
def test_it_trains_and_is_what_was_asked_for(
    config: dict[str, Any], found: dict[str, str], tmp_path: Path
) -> None:
    rows = [{"text": f"number {i} follows number {i - 1}"} for i in range(96)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sections = {
        **config,
        "model": {"id": "tiny-llama", "dtype": "bfloat16", **config.get("model", {})},
        "data": {"train": "train.jsonl"},
        "parallelism": {**config["parallelism"], "num_workers": GPUS},
        "optimizer": {"learning_rate": 2e-3},
        "training": {"micro_batch_size": 2, "global_batch_size": 2 * GPUS, "max_steps": 20},
    }
    checked = TrainingConfig.model_validate(sections).model_dump(mode="json")
    spec = {"config": checked, "folder": str(tmp_path / "run"), "workspace": str(tmp_path)}
    (tmp_path / "run").mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={GPUS}"]
    command = [*launcher, "--standalone", "-m", "tests.gpu.worker", json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    events = FolderTail(tmp_path / "run" / "journal").read()
    start = next(event for event in events if event.kind == "start")
    for name, words in found.items():
        assert words in start.verified[name]
    losses = [event.loss or 0.0 for event in events if event.kind == "step"]
    assert losses[-1] < losses[0]
