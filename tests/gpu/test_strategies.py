"""What only a GPU can train: run `pytest tests/gpu` on a machine that has one, or several.

NEVER RUN: no machine with a GPU was at hand when these were written, so each case is what should
hold and not what was seen. Only that their configs are valid is tested (`test_cases.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
SEVERAL = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
AMPERE = pytest.mark.skipif(
    GPUS == 0 or torch.cuda.get_device_capability()[0] < 8, reason="needs a GPU with TF32"
)


def installed(module: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs {package}")


FLASH = installed("flash_attn", "flash-attn")
FLASH_3 = installed("flash_attn_interface", "flash-attn-3, for Hopper GPUs")
LIGER = installed("liger_kernel", "liger-kernel")
NVME = "{nvme}"
"""Stands for a folder of the test; one on an NVMe disk is given by LLMOPS_TEST_NVME."""
DDP = {"strategy": "ddp"}


@dataclass(frozen=True)
class Case:
    """A config, and what its run must have found; words of each must be in `verified`."""

    config: dict[str, Any]
    found: dict[str, str]
    not_found: dict[str, str] = field(default_factory=dict)
    tf32: bool = False


CASES = [
    pytest.param(
        Case({"method": "qlora", "parallelism": DDP}, {"weights": "nf4"}), id="qlora"
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "zero3", "offload_optimizer": "cpu"}},
            {"engine": "DeepSpeedEngine, ZeRO-3, optimizer states on cpu"},
            not_found={"engine": "weights on"},
        ),
        id="zero3-offload",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "zero3", "offload_optimizer": "cpu",
                                               "offload_params": True}},
            {"engine": "optimizer states on cpu, weights on cpu"},
        ),
        id="zero3-offload-all",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "zero3", "offload_optimizer": "nvme",
                                               "nvme_path": NVME}},
            {"engine": "DeepSpeedEngine, ZeRO-3, optimizer states on nvme"},
        ),
        id="zero3-nvme",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "fsdp", "offload_params": True}},
            {"engine": "FSDP2, weights on cpu"},
        ),
        marks=SEVERAL,
        id="fsdp-offload",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "fsdp"}},
            {"engine": "FSDP2"},
            not_found={"engine": "weights on cpu"},
        ),
        marks=SEVERAL,
        id="fsdp",
    ),
    pytest.param(
        Case(
            {"method": "lora", "parallelism": DDP, "model": {"attention": "flash_attention_2"}},
            {"attention": "flash_attention_2 (flash-attn "},
        ),
        marks=FLASH,
        id="flash-attention",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": DDP, "model": {"attention": "flash_attention_2"},
             "data": {"packing": True, "max_length": 256}},
            {"packing": "on, rows do not attend to each other"},
        ),
        marks=FLASH,
        id="flash-attention-packed",
    ),
    pytest.param(
        Case(
            {"method": "lora", "parallelism": DDP, "model": {"attention": "flash_attention_3"}},
            {"attention": "flash_attention_3 (flash-attn-3 "},
        ),
        marks=FLASH_3,
        id="flash-attention-3",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": DDP, "performance": {"fused_loss": True}},
            {"also on": "fused loss by Liger"},
        ),
        marks=LIGER,
        id="fused-loss",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": DDP, "model": {"dtype": "float32"},
             "performance": {"tf32": True}},
            {"also on": "TF32", "weights": "float32"},
            tf32=True,
        ),
        marks=AMPERE,
        id="tf32",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": DDP, "performance": {"compile": True}},
            {"also on": "compiled"},
        ),
        id="compile",
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {**DDP, "gradient_checkpointing": True}},
            {"also on": "activation checkpointing"},
        ),
        id="checkpointing",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_trains_and_is_what_was_asked_for(case: Case, tmp_path: Path) -> None:
    events = trained(case.config, tmp_path)
    start = next(event for event in events if event.kind == "start")
    for name, words in case.found.items():
        assert words in start.verified[name]
    for name, words in case.not_found.items():
        assert words not in start.verified[name]
    if case.tf32 and start.peak_flops is not None:
        assert start.peak_source.startswith("datasheet, TF32")
    losses = [event.loss or 0.0 for event in events if event.kind == "step"]
    assert losses[-1] < losses[0]


def trained(config: dict[str, Any], tmp_path: Path) -> list[AnyEvent]:
    """Train a tiny model on all GPUs of this machine, and return the journal."""
    rows = [{"text": f"number {i} follows number {i - 1}"} for i in range(96)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    nvme = os.environ.get("LLMOPS_TEST_NVME", str(tmp_path / "nvme"))
    places = {key: nvme if one == NVME else one for key, one in config["parallelism"].items()}
    sections = {
        **config,
        "model": {"id": "tiny-llama", "dtype": "bfloat16", **config.get("model", {})},
        "data": {"train": "train.jsonl", **config.get("data", {})},
        "parallelism": {**places, "num_workers": GPUS},
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
    return FolderTail(tmp_path / "run" / "journal").read()
