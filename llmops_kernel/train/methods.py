"""The methods of training: what each does to the model after it was loaded."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from llmops_kernel.config.models.methods import AdapterMethod, QloraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ModelError
from llmops_kernel.train.model.origin import continue_adapter
from llmops_kernel.warm.preload import without_bitsandbytes


def prepare_full(model: Any, _config: TrainingConfig) -> Any:
    """Return the model; every weight is trained."""
    return model


# --- LoRA: PEFT freezes the weights and adds adapters to some layers ---


def prepare_lora(model: Any, config: TrainingConfig, *, adapter: Path | None = None) -> Any:
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
        task_type=config.objective.task_type,
    )
    try:
        return get_peft_model(model, lora)
    except ValueError as error:
        raise ModelError(
            f"No adapter could be added to {config.model.id}: {error}",
            remedy="check method.target_modules; `all-linear` fits most models",
        ) from error


# --- QLoRA: bitsandbytes keeps the frozen weights in 4 bits, PEFT adds adapters to them ---


def load_quantised(config: TrainingConfig) -> dict[str, Any]:
    """Return what `from_pretrained` needs to quantise the weights while it loads them."""
    from transformers import BitsAndBytesConfig

    # It warns that a kernel of the hub is missing, which `prepare` would not let it use anyway.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    method = config.method
    assert isinstance(method, QloraMethod)
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=method.bnb_4bit_quant_type,
            bnb_4bit_use_double_quant=method.bnb_4bit_use_double_quant,
            bnb_4bit_compute_dtype=getattr(torch, config.model.dtype),
        )
    }


def prepare_qlora(model: Any, config: TrainingConfig, *, adapter: Path | None = None) -> Any:
    """Return the 4-bit model with adapters; what is not quantised becomes float32, as in QLoRA.

    Raises ModelError for a model of 16 or 32 bits, such as one of the hook `build_model`.
    """
    from peft import prepare_model_for_kbit_training

    if not getattr(model, "is_loaded_in_4bit", False):
        raise ModelError(
            "QLoRA trains beside weights of 4 bits, and the hook build_model returned others.",
            remedy="load the model there with a BitsAndBytesConfig(load_in_4bit=True), or set"
            " method.type=lora",
        )
    for module in model.modules():
        # On CPUs with bf16 instructions bitsandbytes 0.50 repacks weights at the first evaluation,
        # for inference alone; and fails where a layer's width is not a multiple of 32.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    # The Trainer turns checkpointing on for all methods alike.
    prepared = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return prepare_lora(prepared, config, adapter=adapter)
