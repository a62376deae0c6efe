"""The strategies of parallelism: one file each. A new one is imported here."""

from __future__ import annotations

from llmops_kernel.config.models.parallelism.auto import AutoStrategy
from llmops_kernel.config.models.parallelism.base import STRATEGIES, ParallelismConfig
from llmops_kernel.config.models.parallelism.ddp import DdpStrategy
from llmops_kernel.config.models.parallelism.fsdp import FsdpStrategy
from llmops_kernel.config.models.parallelism.zero import (
    Zero1Strategy,
    Zero2Strategy,
    Zero3Strategy,
    ZeroStrategy,
)

__all__ = [
    "STRATEGIES",
    "AutoStrategy",
    "DdpStrategy",
    "FsdpStrategy",
    "ParallelismConfig",
    "Zero1Strategy",
    "Zero2Strategy",
    "Zero3Strategy",
    "ZeroStrategy",
]
