"""DDP on the workers: PyTorch averages the gradients. One worker needs no engine at all."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.parallelism.strategy import wrapped

_NAME = "DistributedDataParallel"


def arguments(config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any]:
    return {"ddp_find_unused_parameters": False}


def join(arguments: Any) -> None:
    """Do nothing: Accelerate finds the process group."""


def describe_engine(trainer: Any) -> str:
    name = type(wrapped(trainer)).__name__
    return name if name == _NAME else f"{name}, one worker"


def engine_problem(trainer: Any, config: TrainingConfig) -> str:
    name = type(wrapped(trainer)).__name__
    several = dist.is_initialized() and dist.get_world_size() > 1
    if several and name != _NAME:
        return f"ddp was asked for, and {name} would train: the workers would not meet"
    if not several and (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):
        return f"ddp was asked for, and {name} would train"
    return ""


def trained(trainer: Any) -> list[Any]:
    return [parameter for group in trainer.optimizer.param_groups for parameter in group["params"]]


def prepare_save(trainer: Any) -> None:
    """Do nothing: each worker has whole weights."""
