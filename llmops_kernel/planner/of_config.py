"""A training config as the planner needs it, for those who plan and for those who train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from llmops_kernel.planner.activations import Attention
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.setup import Lora, Setup

if TYPE_CHECKING:  # The planner is imported without pydantic.
    from llmops_kernel.config.models.methods import AdapterMethod
    from llmops_kernel.config.models.train import TrainingConfig

_PAIRED: Final = ("dpo", "orpo", "simpo", "reward")


def setup_of(
    config: TrainingConfig,
    architecture: Architecture,
    *,
    dtype: str,
    attention: Attention,
    on_gpu: bool,
    workers_per_node: int,
    mean_length: float | None = None,
    padded_length: float | None = None,
    by_label: bool = False,
    label_share: float = 1.0,
) -> Setup:
    """Return a config's training. `by_label`: logits are computed where there are labels only."""
    parallelism, performance, data = config.parallelism, config.performance, config.data
    objective = config.objective
    joined = data.packing or performance.padding_free
    return Setup(
        architecture=architecture,
        lora=_lora(config),
        dtype=cast("Any", dtype),
        strategy=cast("Any", parallelism.strategy),
        num_workers=parallelism.num_workers,
        workers_per_node=workers_per_node,
        offload_optimizer=bool(parallelism.offload_optimizer),
        offload_params=parallelism.offload_params,
        checkpointing=parallelism.gradient_checkpointing,
        replaces_linear=parallelism.replaces_linear,
        attention=attention,
        optimizer=config.optimizer.type,
        micro_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        length=data.max_length,
        mean_length=mean_length,
        padded_length=padded_length,
        is_padded=config.micro_batch_size > 1 or joined,
        sequences=2 if objective.type in (*_PAIRED, "embed") else 1,
        has_head=objective.output == "text",
        logits="fused" if performance.fused_loss else "labels" if by_label else "all",
        label_share=label_share,
        references=_references(config),
        on_gpu=on_gpu,
        **_of_deepspeed(config),
    )


def _references(config: TrainingConfig) -> int:
    """Return forward passes of the reference in each step: with its adapter turned off.

    Another model, or the one that is trained as a whole, is asked once before the first step.
    """
    objective = config.objective
    is_asked = objective.has_reference and not objective.has_other_reference
    return int(is_asked and config.method.saves == "adapter")


def by_label(config: TrainingConfig) -> bool:
    """Return whether a run computes logits where there are labels only, if its model allows it."""
    performance = config.performance
    has_logits = config.objective.output == "text"
    return performance.automatic and has_logits and not performance.compile


def attention_of(config: TrainingConfig, architecture: Architecture) -> Attention:
    """Return the kernel of attention that a run of this config has."""
    name = config.model.attention
    if name.startswith("flash"):
        return "flash"
    if name == "auto":
        return "eager" if architecture.traits.softcap else "sdpa"
    return cast("Attention", name)


def _lora(config: TrainingConfig) -> Lora | None:
    if config.method.saves != "adapter":
        return None
    method = cast("AdapterMethod", config.method)
    is_qlora = method.type == "qlora"
    return Lora(
        r=method.r,
        target_modules=method.target_modules,
        dropout=method.lora_dropout,
        dora=method.use_dora,
        bits=4 if is_qlora else None,
        double_quant=getattr(method, "bnb_4bit_use_double_quant", True),
    )


def _of_deepspeed(config: TrainingConfig) -> dict[str, int]:
    if not config.parallelism.strategy.startswith("zero"):
        return {}
    settings: Mapping[str, Any] = getattr(config.parallelism, "deepspeed", {})
    zero = settings.get("zero_optimization")
    given = zero if isinstance(zero, Mapping) else {}
    names = {"bucket": "reduce_bucket_size", "max_live": "stage3_max_live_parameters"}
    return {
        key: int(given[name])
        for key, name in names.items()
        if isinstance(given.get(name), int | float)
    }
