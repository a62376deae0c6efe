"""LoRA: PEFT freezes the weights and adds adapters to some layers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.methods import AdapterMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ModelError
from llmops_kernel.train.model.origin import continue_adapter
from llmops_kernel.warm.preload import without_bitsandbytes


def prepare(model: Any, config: TrainingConfig, *, adapter: Path | None = None) -> Any:
    """Return the model with adapters: new ones, or those of a folder.

    Raises ModelError when no layer has a given name, or a folder's are others.
    """
    with nullcontext() if config.method.needs else without_bitsandbytes():
        return _new(model, config) if adapter is None else continue_adapter(model, config, adapter)


def _new(model: Any, config: TrainingConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    method = config.method
    assert isinstance(method, AdapterMethod)
    targets = method.target_modules
    lora = LoraConfig(
        r=method.r,
        lora_alpha=method.lora_alpha,
        lora_dropout=method.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        use_rslora=method.use_rslora,
        use_dora=method.use_dora,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, lora)
    except ValueError as error:
        raise ModelError(
            f"No adapter could be added to {config.model.id}: {error}",
            remedy="check method.target_modules; `all-linear` fits most models",
        ) from error
