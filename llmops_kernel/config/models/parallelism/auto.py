"""`auto`: stands for another strategy, which a config in memory and its record name."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.config.models.parallelism.base import STRATEGIES, ParallelismConfig


@STRATEGIES.add
class AutoStrategy(ParallelismConfig):
    variant_name = "auto"
    summary = "is `ddp` for one worker and `zero2` for several or for offloading"

    strategy: Literal["auto"] = "auto"
