"""Figures computed from a model that a script passes; needs no torch of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmops_kernel.metrics.flops import training_flops
from llmops_kernel.metrics.lora import lora_adapters
from llmops_kernel.metrics.shapes import ModelShape

FlopsOf = Callable[[int, float], float | None]
"""(tokens, sum of squared sequence lengths) of all workers -> FLOPs."""

_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")


@dataclass(frozen=True)
class ModelFacts:
    name: str
    """Class of the model as it was handed over: `DistributedDataParallel`."""
    num_params: int
    num_trainable: int
    dtype: str
    """The weights' dtype: "float32"; empty without weights."""
    device: str
    """The weights' device: "cpu", "cuda"."""
    flops_of: FlopsOf | None
    """None when the architecture is unknown or only a part of it is trained."""


def describe_model(model: Any) -> ModelFacts:
    """Count the weights and find how many FLOPs a token needs."""
    total = trainable = 0
    dtype = device = ""
    for parameter in model.parameters():
        # Under ZeRO-3 a weight is sharded and its numel() is 0.
        size = int(getattr(parameter, "ds_numel", parameter.numel()))
        total += size
        trainable += size if parameter.requires_grad else 0
        dtype = dtype or str(parameter.dtype).removeprefix("torch.")
        device = device or str(parameter.device.type)
    return ModelFacts(
        name=type(model).__name__,
        num_params=total,
        num_trainable=trainable,
        dtype=dtype,
        device=device,
        flops_of=_flops_of(unwrapped(model), total=total, trainable=trainable),
    )


def unwrapped(model: Any) -> Any:
    """Return the model inside DistributedDataParallel, DeepSpeed's engine or torch.compile."""
    for _ in range(8):
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None or not hasattr(inner, "parameters"):
            break
        model = inner
    return model


def _flops_of(model: Any, *, total: int, trainable: int) -> FlopsOf | None:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    config: Any = getattr(base, "config", None)
    if not type(base).__name__.endswith(_LANGUAGE_MODELS) or not hasattr(config, "to_dict"):
        return None
    settings = config.to_dict()
    shape = ModelShape.from_config(settings)
    if shape is None:
        return None
    if trainable == total:
        return lambda tokens, squares: training_flops(
            shape, tokens=tokens, sum_squared_lengths=squares
        )
    return _lora_flops(model, shape, settings, trainable=trainable)


def _lora_flops(model: Any, shape: ModelShape, settings: Any, *, trainable: int) -> FlopsOf | None:
    adapter: Any = getattr(model, "peft_config", {}).get(
        getattr(model, "active_adapter", "default")
    )
    targets = getattr(adapter, "target_modules", None)
    if targets is None or not getattr(adapter, "r", 0):
        return None  # Partly frozen in a way of its own: what is needed is unknown.
    names = targets if isinstance(targets, str) else tuple(sorted(targets))
    adapters = lora_adapters(shape, r=adapter.r, target_modules=names)
    if adapters is not None and adapters.params != trainable:
        adapters = None
    if adapters is None and ("num_local_experts" in settings or "num_experts" in settings):
        return None  # The rounder formula would count experts that a token does not meet.
    return lambda tokens, squares: training_flops(
        shape,
        tokens=tokens,
        sum_squared_lengths=squares,
        method="lora",
        adapters=adapters,
        adapter_params=trainable,
    )
