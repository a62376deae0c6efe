"""ZeRO: DeepSpeed shards optimizer states, gradients and weights over the workers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.parallelism.base import STRATEGIES, ParallelismConfig


class ZeroStrategy(ParallelismConfig):
    """A stage of ZeRO; each shards what the stages before it do, and one thing more."""

    worker_side = "llmops_kernel.train.parallelism.zero"
    stage: ClassVar[int]

    deepspeed: dict[str, Any] = Field(default_factory=dict)
    """Further settings of DeepSpeed, laid over those that follow from this config, such as `zero_optimization: {overlap_comm: true}`."""


@STRATEGIES.add
class Zero1Strategy(ZeroStrategy):
    variant_name = "zero1"
    summary = "shards optimizer states over the workers, through DeepSpeed"
    stage = 1
    sharded = ("optimizer states",)

    strategy: Literal["zero1"] = "zero1"


@STRATEGIES.add
class Zero2Strategy(ZeroStrategy):
    variant_name = "zero2"
    summary = "shards gradients too"
    stage = 2
    sharded = ("optimizer states", "gradients")

    strategy: Literal["zero2"] = "zero2"


@STRATEGIES.add
class Zero3Strategy(ZeroStrategy):
    variant_name = "zero3"
    summary = "shards weights too"
    stage = 3
    sharded = ("optimizer states", "gradients", "weights")

    strategy: Literal["zero3"] = "zero3"
    nvme_path: str | None = None
    """Folder on a local NVMe disk of each node, for `offload_optimizer: nvme`."""
