"""LoRA: PEFT freezes the weights and adds adapters to some layers."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.models.methods import LoraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ModelError


def prepare(model: Any, config: TrainingConfig) -> Any:
    """Return the model with adapters. Raises ModelError when no layer has a given name."""
    from peft import LoraConfig, get_peft_model

    method = config.method
    assert isinstance(method, LoraMethod)
    targets = method.target_modules
    lora = LoraConfig(
        r=method.r,
        lora_alpha=method.lora_alpha,
        lora_dropout=method.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, lora)
    except ValueError as error:
        raise ModelError(
            f"No adapter could be added to {config.model.id}: {error}",
            remedy="check method.target_modules; `all-linear` fits most models",
        ) from error
