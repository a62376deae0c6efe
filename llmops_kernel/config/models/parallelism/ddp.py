"""DDP: each worker has a copy of everything."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.config.models.parallelism.base import STRATEGIES, ParallelismConfig


@STRATEGIES.add
class DdpStrategy(ParallelismConfig):
    variant_name = "ddp"
    summary = "copies everything to each worker"
    worker_side = "llmops_kernel.train.parallelism.ddp"

    strategy: Literal["ddp"] = "ddp"
