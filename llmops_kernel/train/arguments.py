"""Build Transformers' TrainingArguments from a training config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.train.parallelism.strategy import strategy


def training_arguments(config: TrainingConfig, *, folder: Path, use_gpu: bool) -> TrainingArguments:
    """Build TrainingArguments; for ZeRO-3 this must come before the model. Raises ConfigError."""
    try:
        return TrainingArguments(**_arguments(config, folder, use_gpu))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"Transformers refuses these training arguments: {error}",
            remedy="check training_arguments, model.dtype and parallelism in the config",
        ) from error


def _arguments(config: TrainingConfig, folder: Path, use_gpu: bool) -> dict[str, Any]:
    arguments = {
        "output_dir": str(folder / "checkpoints"),
        "use_cpu": not use_gpu,
        "bf16": config.model.dtype == "bfloat16",
        "seed": config.seed,
        "report_to": list(config.report_to) or "none",
        "run_name": config.name,
        # Every step is journalled; saving, evaluating and rotating are our callback's.
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # a NaN loss must be seen, not smoothed over
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": use_gpu,
        "train_sampling_strategy": "random" if config.data.shuffle else "sequential",
        **_schedule(config),
        **_performance(config),
    }
    if config.parallelism.gradient_checkpointing:
        arguments["activation_checkpointing"] = True
        # The reentrant kind gives no gradient to adapters above frozen embeddings.
        arguments["activation_checkpointing_kwargs"] = {"use_reentrant": False}
    sharding = strategy(config).arguments(config, use_gpu=use_gpu)
    return {**arguments, **sharding, **config.training_arguments}


def _performance(config: TrainingConfig) -> dict[str, Any]:
    performance = config.performance
    arguments: dict[str, Any] = {}
    if performance.compile:
        arguments["torch_compile"] = True
    if performance.tf32:
        arguments["tf32"] = True
    if performance.fused_loss:
        arguments["use_liger_kernel"] = True
        # Only the loss: Liger's other kernels would replace what was not asked for.
        off = ("rope", "rms_norm", "swiglu", "geglu", "layer_norm", "cross_entropy")
        arguments["liger_kernel_config"] = {
            **dict.fromkeys(off, False),
            "fused_linear_cross_entropy": True,
        }
    return arguments


def _schedule(config: TrainingConfig) -> dict[str, Any]:
    training, optimizer = config.training, config.optimizer
    return {
        "per_device_train_batch_size": training.micro_batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "num_train_epochs": training.num_epochs,
        "max_steps": training.max_steps or -1,
        "learning_rate": optimizer.learning_rate,
        "lr_scheduler_type": optimizer.lr_scheduler_type,
        "warmup_steps": config.warmup_steps,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.adam_beta1,
        "adam_beta2": optimizer.adam_beta2,
        "max_grad_norm": optimizer.max_grad_norm,
    }
