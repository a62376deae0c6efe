"""What only a GPU can train: run `pytest tests/gpu` on a machine that has one, or several.

Run once, on 2026-11-26 with one H100 80GB HBM3 (Python 3.12.3, torch 2.11.0+cu130, all else as
pinned). Seen to pass: qlora, zero3-offload, zero3-offload-all, fused-loss, tf32. Failed, and the
time on the machine ended before the reason was read: zero3-nvme. Not finished in three minutes, or
not begun: compile, checkpointing. Never run: those that need several GPUs or Flash Attention. That
the configs are valid is tested anywhere (`test_cases.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.hardware.accelerators import peak_flops
from tests.gpu.trained import GPUS, NVME, trained

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
DDP = {"strategy": "ddp"}


@dataclass(frozen=True)
class Case:
    """A config, and what its run must have found; words of each must be in `verified`."""

    config: dict[str, Any]
    found: dict[str, str]
    not_found: dict[str, str] = field(default_factory=dict)
    tf32: bool = False
    dtype: str = ""
    """What the run must compute in, where the config says `auto`."""


CASES = [
    pytest.param(  # fast on this GPU, and what is updated is not rounded to bfloat16
        Case(
            {"method": "full", "parallelism": DDP, "model": {"dtype": "auto"}},
            {"weights": "float32", "updated weights": "float32"},
            {"weights": "bfloat16"},
            dtype="bfloat16",
        ),
        id="auto-full",
        marks=AMPERE,
    ),
    pytest.param(
        Case(
            {"method": "full", "parallelism": {"strategy": "zero2"}, "model": {"dtype": "auto"}},
            {"weights": "bfloat16", "updated weights": "float32"},
            dtype="bfloat16",
        ),
        id="auto-full-zero2",
        marks=AMPERE,
    ),
    pytest.param(
        Case(
            {"method": "lora", "parallelism": DDP, "model": {"dtype": "auto"}},
            {"weights": "bfloat16 and float32", "updated weights": "float32"},
            dtype="bfloat16",
        ),
        id="auto-lora",
        marks=AMPERE,
    ),
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
    if case.dtype:
        assert start.dtype == case.dtype
        assert start.performance.startswith(f"{case.dtype} ({start.device} has it")
        first = [one for one in events if one.kind == "phase" and one.name == "first_step"]
        assert first[-1].detail == "optimizer states float32"
        if start.peak_flops is not None:
            assert start.peak_flops == peak_flops(start.device, case.dtype)
    losses = [event.loss or 0.0 for event in events if event.kind == "step"]
    assert losses[-1] < losses[0]
