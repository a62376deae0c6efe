"""Before the first step: is what the config asks for what will run? A difference is an error.

Libraries replace what they cannot do, often without a word: Accelerate trains with plain DDP where
it leaves DeepSpeed or FSDP out, with the same losses and several times the memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from llmops_kernel.config.models.methods import QloraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, TrainingError
from llmops_kernel.train.data.examples import Packed
from llmops_kernel.train.measure.attention_kernel import describe_kernels
from llmops_kernel.train.model.load import ParameterCount, count_parameters
from llmops_kernel.train.parallelism.strategy import strategy, wrapped
from llmops_kernel.train.performance.in_force import (
    attention_names,
    describe_speed,
    packing_state,
    speed_problems,
)


def verify(
    trainer: Any, config: TrainingConfig, *, loaded: ParameterCount, is_own_model: bool
) -> dict[str, str]:
    """Return what will run, for the journal; takes milliseconds. Call it when the engine is ready.

    `is_own_model`: the hook `build_model` made the model, which may be any. Raises TrainingError on
    all ranks alike, for what each can see of its own part. With joined rows the model is run with
    a few tokens, which is a collective where its weights are sharded.
    """
    model, engine = trainer.model, strategy(config)
    updated = _dtypes(engine.trained(trainer) if trainer.optimizer is not None else ())
    count = count_parameters(model)
    weights = _dtypes(model.parameters())
    attention = attention_names(model)
    problems = [
        engine.engine_problem(trainer, config),
        _count_problem(count, loaded, config, is_own_model=is_own_model),
        _dtype_problem(weights, updated, config, is_own_model=is_own_model),
        _packing_problem(trainer.train_dataset, config),
        "" if is_own_model else _attention_problem(attention, config),
        *(() if is_own_model else speed_problems(trainer, config)),
    ]
    _raise_if(problems)
    # After the others: it runs the model.
    packing, mixing = packing_state(trainer, config)
    if mixing:
        raise _rows_mix(mixing, config)
    facts = {
        "engine": engine.describe_engine(trainer),
        "attention": describe_kernels(model, attention, config.model.dtype, trainer.args.device),
        "weights": _words(weights),
        "updated weights": _words(updated),
        "trained": f"{count.trainable:,} of {count.total:,} parameters",
        "packing": packing,
        "also on": describe_speed(trainer),
    }
    return {name: words for name, words in facts.items() if words}


def _raise_if(problems: list[str]) -> None:
    if listed := [problem for problem in problems if problem]:
        raise TrainingError(
            "The run would not train as its config says: " + "; ".join(listed) + ".",
            remedy="this was found before the first step, and nothing was trained; check"
            " training_arguments and the ACCELERATE_* variables of the cluster's env",
        )


def _rows_mix(problem: str, config: TrainingConfig) -> ConfigError:
    off = "data.packing" if config.data.packing else "performance.padding_free"
    instead = "performance.group_by_length=true, which keeps padding small"
    return ConfigError(
        f"{problem}. Nothing was trained.",
        remedy=f"set {off}=false and {instead}; on GPUs another model.attention may keep rows apart"
        " (flash_attention_2), which the run checks again",
    )


def optimizer_state_words(trainer: Any) -> str:
    """Return the dtypes of what the optimizer keeps of each weight; known after the first step."""
    optimizer = getattr(wrapped(trainer), "optimizer", None) or trainer.optimizer
    for _ in range(4):  # Accelerate's and DeepSpeed's wrappers
        optimizer = getattr(optimizer, "optimizer", optimizer)
    values = (value for state in optimizer.state.values() for value in state.values())
    # A step counter is no state of a weight.
    return _words(
        _dtypes(state for state in values if torch.is_tensor(state) and state.numel() > 1)
    )


def _dtypes(tensors: Any) -> Counter[str]:
    """Return how many elements there are of each type; packed 4-bit weights by their own name."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        state = getattr(tensor, "quant_state", None)
        name = state.quant_type if state is not None else str(tensor.dtype).removeprefix("torch.")
        counts[name] += max(1, getattr(tensor, "ds_numel", tensor.numel()))
    return counts


def _words(dtypes: Counter[str]) -> str:
    return " and ".join(name for name, _ in dtypes.most_common()) or "unknown"


def _count_problem(
    count: ParameterCount,
    loaded: ParameterCount,
    config: TrainingConfig,
    *,
    is_own_model: bool,
) -> str:
    if count != loaded:
        return (
            f"{loaded.trainable:,} of {loaded.total:,} parameters were to be trained, and"
            f" {count.trainable:,} of {count.total:,} would be"
        )
    if is_own_model:
        return ""
    is_all = count.trainable == count.total
    if config.method.saves == "adapter" and (is_all or not count.trainable):
        return f"method {config.method.type} would train {count.trainable:,} parameters of all"
    return ""


def _dtype_problem(
    weights: Counter[str], updated: Counter[str], config: TrainingConfig, *, is_own_model: bool
) -> str:
    method = config.method
    if isinstance(method, QloraMethod) and method.bnb_4bit_quant_type not in weights:
        return f"qlora was asked for, and no weight is in {method.bnb_4bit_quant_type}"
    if is_own_model:
        return ""
    allowed = {"float32", "bfloat16"} | {getattr(method, "bnb_4bit_quant_type", "float32")}
    if config.model.dtype == "float32":
        allowed -= {"bfloat16"}
    if strange := weights.keys() - allowed:
        return f"model.dtype={config.model.dtype}, and weights are in {', '.join(sorted(strange))}"
    if low := updated.keys() - {"float32"}:
        return f"the optimizer would update weights of {', '.join(sorted(low))}, not of float32"
    return ""


def _packing_problem(dataset: Any, config: TrainingConfig) -> str:
    if not isinstance(dataset, list | tuple) or not dataset:
        return ""
    is_packed = isinstance(dataset[0], Packed)
    if is_packed == config.data.packing:
        return ""
    return f"data.packing={config.data.packing}, and rows are {'' if is_packed else 'not '}packed"


def _attention_problem(actual: str, config: TrainingConfig) -> str:
    configured = config.model.attention
    if configured == "auto" or actual in (configured, "unknown"):
        return ""
    return f"model.attention={configured} was asked for, and the layers use {actual}"
