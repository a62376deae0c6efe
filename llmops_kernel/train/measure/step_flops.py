"""Counts the model FLOPs of a step for the network that is really trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmops_kernel.config.models.methods import FullMethod, LoraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.metrics.flops import training_flops
from llmops_kernel.metrics.lora import lora_adapters
from llmops_kernel.metrics.shapes import ModelShape
from llmops_kernel.train.model.load import ParameterCount

FlopsOf = Callable[[int, int], float | None]
"""(tokens, sum of squared lengths) of all workers -> FLOPs, or None when unknown."""


def flops_counter(
    network: Any, *, config: TrainingConfig, counted: ParameterCount
) -> FlopsOf | None:
    """Return None if the work is unknown: an unknown architecture, or a partly frozen model."""
    settings: Any = getattr(network, "config", None)
    shape = ModelShape.from_config(settings.to_dict()) if hasattr(settings, "to_dict") else None
    method = config.method
    if shape is None:
        return None
    if isinstance(method, FullMethod):
        if counted.trainable != counted.total:
            return None
        return lambda tokens, squares: training_flops(
            shape, tokens=tokens, sum_squared_lengths=squares
        )
    if not isinstance(method, LoraMethod):
        return None
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
