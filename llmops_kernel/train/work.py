"""Counts the model FLOPs of a step for the network that is really trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.metrics.flops import training_flops
from llmops_kernel.metrics.lora import lora_adapters
from llmops_kernel.metrics.shapes import ModelShape
from llmops_kernel.train.model import ParameterCount

FlopsOf = Callable[[int, int], float | None]
"""(tokens, sum of squared lengths) of all workers -> FLOPs, or None when unknown."""


def flops_counter(
    network: Any, *, config: TrainingConfig, counted: ParameterCount
) -> FlopsOf | None:
    """None when the work cannot be told: an unknown architecture, or a partly frozen model."""
    settings: Any = getattr(network, "config", None)
    shape = ModelShape.from_config(settings.to_dict()) if hasattr(settings, "to_dict") else None
    method = config.method
    if shape is None or (method.type == "full" and counted.trainable != counted.total):
        return None
    if method.type == "full":
        return lambda tokens, squares: training_flops(
            shape, tokens=tokens, sum_squared_lengths=squares
        )
    adapters = lora_adapters(shape, r=method.r, target_modules=method.target_modules)
    if adapters is not None and adapters.params != counted.trainable:
        # PEFT placed them otherwise than the shape says. The rounder formula serves, but not on
        # a mixture of experts, where it would count adapters of experts that did nothing.
        adapters = None
        if "num_local_experts" in settings.to_dict() or "num_experts" in settings.to_dict():
            return None
    return lambda tokens, squares: training_flops(
        shape,
        tokens=tokens,
        sum_squared_lengths=squares,
        method="lora",
        adapters=adapters,
        adapter_params=counted.trainable,
    )
