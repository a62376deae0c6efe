"""From a training config to Transformers' TrainingArguments and DeepSpeed's dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError

_STAGES = {"zero1": 1, "zero2": 2, "zero3": 3}


def deepspeed_config(config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any] | None:
    """DeepSpeed's settings; None for `ddp`. "auto" values are filled in by Transformers."""
    parallelism = config.parallelism
    stage = _STAGES.get(parallelism.strategy)
    if stage is None:
        return None
    zero: dict[str, Any] = {"stage": stage}
    if parallelism.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": use_gpu}
    if stage == 3:
        # Without it only ZeRO shards are saved, which no other tool can load.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
        if parallelism.offload_params:
            zero["offload_param"] = {"device": "cpu", "pin_memory": use_gpu}
    settings: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": config.model.dtype == "bfloat16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000_000,  # its own step log only repeats our journal
    }
    if not use_gpu:
        # On a CPU the weights are in host memory anyway; building DeepSpeed's CPU Adam would
        # cost minutes at the first run for no gain.
        settings["zero_force_ds_cpu_optimizer"] = False
    elif parallelism.offload_optimizer:
        settings["optimizer"] = _cpu_adam(config)
    return settings


def _cpu_adam(config: TrainingConfig) -> dict[str, Any]:
    """DeepSpeed's vectorised CPU Adam, several times faster than torch's on offloaded states."""
    optimizer = config.optimizer
    return {
        "type": "AdamW",
        "params": {
            "lr": optimizer.learning_rate,
            "betas": [optimizer.adam_beta1, optimizer.adam_beta2],
            "weight_decay": optimizer.weight_decay,
        },
    }


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
        "deepspeed": deepspeed_config(config, use_gpu=use_gpu),
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
        "ddp_find_unused_parameters": False,
        **_schedule(config),
        **_performance(config),
    }
    if config.parallelism.gradient_checkpointing:
        arguments["activation_checkpointing"] = True
        # The reentrant kind gives no gradient to adapters above frozen embeddings.
        arguments["activation_checkpointing_kwargs"] = {"use_reentrant": False}
    return {**arguments, **config.training_arguments}


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
