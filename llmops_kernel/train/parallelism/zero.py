"""ZeRO on the workers: DeepSpeed's settings from the config, and what it has made of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch.distributed as dist

from llmops_kernel.config.models.parallelism import Zero3Strategy, ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.collectives import is_group
from llmops_kernel.train.parallelism.strategy import wrapped
from llmops_kernel.warm.preload import MUON, without_compiler

_NAME = "DeepSpeedEngine"


def arguments(config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any]:
    return {"deepspeed": deepspeed_config(config, use_gpu=use_gpu)}


def deepspeed_config(config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any]:
    """Return DeepSpeed's settings. "auto" values are filled in by Transformers."""
    parallelism = config.parallelism
    assert isinstance(parallelism, ZeroStrategy)
    settings: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": config.model.dtype == "bfloat16"},
        "zero_optimization": _stage(parallelism, use_gpu=use_gpu),
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1_000_000_000,  # its own step log only repeats our journal
    }
    if not use_gpu:
        # On a CPU the weights are in host memory anyway; building DeepSpeed's CPU Adam would
        # cost minutes at the first run for no gain.
        settings["zero_force_ds_cpu_optimizer"] = False
    elif parallelism.offload_optimizer:
        settings["optimizer"] = _cpu_adam(config)
    return _merged(settings, parallelism.deepspeed)


def _stage(parallelism: ZeroStrategy, *, use_gpu: bool) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": parallelism.stage}
    if parallelism.offload_optimizer:
        place: dict[str, Any] = {"device": parallelism.offload_optimizer, "pin_memory": use_gpu}
        if parallelism.offload_optimizer == "nvme" and isinstance(parallelism, Zero3Strategy):
            place["nvme_path"] = parallelism.nvme_path
        zero["offload_optimizer"] = place
    if parallelism.stage == 3:
        # Without it only ZeRO shards are saved, which no other tool can load.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
        if parallelism.offload_params:
            zero["offload_param"] = {"device": "cpu", "pin_memory": use_gpu}
    return zero


def _merged(settings: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the user's own settings over ours, section by section."""
    merged = dict(settings)
    for name, value in added.items():
        below = merged.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _cpu_adam(config: TrainingConfig) -> dict[str, Any]:
    """Return DeepSpeed's vectorised CPU Adam, much faster than torch's on offloaded states."""
    optimizer = config.optimizer
    return {
        "type": "AdamW",
        "params": {
            "lr": optimizer.learning_rate,
            "betas": [optimizer.adam_beta1, optimizer.adam_beta2],
            "weight_decay": optimizer.weight_decay,
        },
    }


def join(arguments: Any) -> None:
    """Pass the existing process group to DeepSpeed.

    Accelerate does not on a CPU, and ZeRO-3 would assume a world size of 1 when it shards the
    weights while loading them.
    """
    with without_compiler(), suppress(ImportError):  # Not in every DeepSpeed.
        import_module(MUON)
    if is_group():
        import deepspeed

        deepspeed.init_distributed(dist_backend=dist.get_backend(), verbose=False)


def describe_engine(trainer: Any) -> str:
    engine = wrapped(trainer)
    name = type(engine).__name__
    if name != _NAME:
        return name
    places = {
        "optimizer states": _place(engine.zero_offload_optimizer()),
        "weights": _place(engine.zero_offload_param()),
    }
    offloads = "".join(f", {part} on {place}" for part, place in places.items() if place)
    return f"{name}, ZeRO-{engine.zero_optimization_stage()}{offloads}"


def offloads_optimizer(engine: Any) -> bool:
    """Return whether DeepSpeed keeps the states of the optimizer in host memory or on a disk."""
    return bool(_place(engine.zero_offload_optimizer()))


def _place(settings: Any) -> str:
    """Return `cpu` or `nvme`; empty where nothing is offloaded."""
    device = getattr(settings, "device", None)
    name = str(getattr(device, "value", device or "none"))
    return "" if name == "none" else name


def engine_problem(trainer: Any, config: TrainingConfig) -> str:
    engine, parallelism = wrapped(trainer), config.parallelism
    assert isinstance(parallelism, ZeroStrategy)
    name = type(engine).__name__
    if name != _NAME:
        return f"{parallelism.strategy} was asked for, and {name} would train without DeepSpeed"
    if (stage := engine.zero_optimization_stage()) != parallelism.stage:
        return f"{parallelism.strategy} was asked for, and DeepSpeed would train with stage {stage}"
    # Settings of `parallelism.deepspeed` lie over those of our own keys.
    settings = deepspeed_config(config, use_gpu=trainer.args.device.type != "cpu")[
        "zero_optimization"
    ]
    for key, configured, actual in (
        ("offload_optimizer", settings.get("offload_optimizer"), engine.zero_offload_optimizer()),
        ("offload_params", settings.get("offload_param"), engine.zero_offload_param()),
    ):
        expected, place = (configured or {}).get("device", "none"), _place(actual) or "none"
        if place != expected:
            return f"{key}: {expected} was asked for, and DeepSpeed would use {place}"
    return ""


def trained(trainer: Any) -> list[Any]:
    """Return DeepSpeed's own copies of the weights, which its optimizer updates."""
    optimizer = getattr(wrapped(trainer), "optimizer", trainer.optimizer)
    for name in ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups"):
        if groups := getattr(optimizer, name, None):
            return list(groups)
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def prepare_save(trainer: Any) -> None:
    """Do nothing: DeepSpeed gathers whole weights, as `_stage` asks it to."""
