"""Requirements of a config on the cluster: packages, GPUs, and the versions installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import TrainingError

_FLASH = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
_KERNELS = "kernels"
"""With this package Transformers 5.23 fetches the flash attention that is not installed."""


def check_worker(config: TrainingConfig, *, use_gpu: bool) -> None:
    """Raise TrainingError for a package or a GPU that the config needs and a worker lacks."""
    check_packages(config)
    check_device(config, use_gpu=use_gpu)


def check_packages(config: TrainingConfig) -> None:
    """Raise TrainingError if this environment lacks a package that the config needs."""
    missing = [name for name in config.method.needs if find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise TrainingError(
            f"method {config.method.type} needs the package {names}, which is not installed in"
            " the environment of the cluster.",
            remedy=f"install it on all nodes: `pip install {names}` or"
            " `pip install 'llmops-kernel[gpu]'`; or set method.type=lora",
        )
    if config.optimizer.type == "adamw_8bit" and find_spec("bitsandbytes") is None:
        raise TrainingError(
            "optimizer.type=adamw_8bit needs the package bitsandbytes, which is not installed in"
            " the environment of the cluster.",
            remedy="install it on all nodes: `pip install 'llmops-kernel[gpu]'`; or set"
            " optimizer.type=adamw",
        )
    attention = config.model.attention
    module = _FLASH.get(attention)
    if module and not (find_spec(module) or find_spec(_KERNELS)):
        raise _no_flash(attention)
    if config.performance.fused_loss and find_spec("liger_kernel") is None:
        raise TrainingError(
            "performance.fused_loss needs the package liger-kernel, which is not installed in the"
            " environment of the cluster.",
            remedy="install it on all nodes: `pip install 'llmops-kernel[kernels]'`; or set"
            " performance.fused_loss=false",
        )


def _no_flash(attention: str) -> TrainingError:
    if attention == "flash_attention_3":
        return TrainingError(
            "model.attention=flash_attention_3 needs the package flash-attn-3, which is not"
            " installed in the environment of the cluster.",
            remedy="build it from the folder `hopper` of flash-attention on all nodes (it has no"
            " wheel, and so is in no extra of llmops-kernel); or set attention=sdpa",
        )
    return TrainingError(
        f"model.attention={attention} needs the package flash-attn, which is not installed in the"
        " environment of the cluster.",
        remedy="install it on all nodes: `pip install --no-build-isolation"
        " 'llmops-kernel[kernels]'`; or set attention=sdpa",
    )


def check_device(config: TrainingConfig, *, use_gpu: bool) -> None:
    """Raise TrainingError for what needs a GPU, where the workers will have none."""
    unmet = [] if use_gpu else list(_on_gpus_only(config))
    if unmet:
        names = " and ".join(f"{name}={value}" for name, value, _ in unmet)
        instead = " and ".join(f"{name}={replacement}" for name, _, replacement in unmet)
        raise TrainingError(
            f"{names} {'needs' if len(unmet) == 1 else 'need'} a GPU, and the workers of this run"
            " have none.",
            remedy=f"set {instead}, or submit to a cluster with GPUs",
        )


def _on_gpus_only(config: TrainingConfig) -> Iterator[tuple[str, str, str]]:
    """Yield name, value, and the value that works without a GPU."""
    if config.model.attention in _FLASH:
        yield "model.attention", config.model.attention, "sdpa"
    for name in ("fused_loss", "tf32"):
        if getattr(config.performance, name):
            yield f"performance.{name}", "true", "false"
