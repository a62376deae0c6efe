"""FSDP: PyTorch shards weights, gradients and optimizer states over the workers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from llmops_kernel.config.models.parallelism.base import STRATEGIES, ParallelismConfig


@STRATEGIES.add
class FsdpStrategy(ParallelismConfig):
    variant_name = "fsdp"
    summary = (
        "shards weights, gradients and optimizer states over the workers, with PyTorch's FSDP2"
    )
    worker_side = "llmops_kernel.train.parallelism.fsdp"
    sharded = ("optimizer states", "gradients", "weights")

    strategy: Literal["fsdp"] = "fsdp"
    fsdp: dict[str, Any] = Field(default_factory=dict)
    """Further settings of Transformers' `fsdp_config`, such as `reshard_after_forward: false`."""
