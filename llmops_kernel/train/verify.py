"""Before the first step: is what the config asks for what will run? A difference is an error.

Libraries replace what they cannot do, often without a word: Accelerate trains with plain DDP where
it leaves DeepSpeed or FSDP out, with the same losses and several times the memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmops_kernel.config.models.methods import QloraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import TrainingError
from llmops_kernel.train.data.examples import Packed
from llmops_kernel.train.model.load import ParameterCount, count_parameters
from llmops_kernel.train.parallelism.strategy import strategy


def verify(
    trainer: Any, config: TrainingConfig, *, loaded: ParameterCount, is_own_model: bool
) -> dict[str, str]:
    """Return what will run, for the journal; takes milliseconds. Call it when the engine is ready.

    `is_own_model`: the hook `build_model` made the model, which may be any. Raises TrainingError on
    all ranks alike, for what each can see of its own part.
    """
    model, engine = trainer.model, strategy(config)
    updated = _dtypes(engine.trained(trainer) if trainer.optimizer is not None else ())
    counted = count_parameters(model)
    weights = _dtypes(model.parameters())
    attention = _attention(model)
    problems = [
        engine.engine_problem(trainer, config),
        _count_problem(counted, loaded, config, is_own_model=is_own_model),
        _dtype_problem(weights, updated, config, is_own_model=is_own_model),
        _packing_problem(trainer.train_dataset, config),
        "" if is_own_model else _attention_problem(attention, config),
    ]
    if found := [problem for problem in problems if problem]:
        raise TrainingError(
            "The run would not train as its config says: " + "; ".join(found) + ".",
            remedy="this was found before the first step, and nothing was trained; check"
            " training_arguments and the ACCELERATE_* variables of the cluster's env",
        )
    return {
        "engine": engine.engine_words(trainer),
        "attention": attention,
        "weights": _words(weights),
        "optimizer states": _words(updated),
        "trained": f"{counted.trainable:,} of {counted.total:,} parameters",
        "packing": "on" if config.data.packing else "off",
    }


def _dtypes(tensors: Any) -> Counter[str]:
    """Return how many elements there are of each type; packed 4-bit weights by their own name."""
    found: Counter[str] = Counter()
    for one in tensors:
        state = getattr(one, "quant_state", None)
        name = state.quant_type if state is not None else str(one.dtype).removeprefix("torch.")
        found[name] += max(1, getattr(one, "ds_numel", one.numel()))
    return found


def _words(dtypes: Counter[str]) -> str:
    return " and ".join(name for name, _ in dtypes.most_common()) or "unknown"


def _count_problem(
    counted: ParameterCount,
    loaded: ParameterCount,
    config: TrainingConfig,
    *,
    is_own_model: bool,
) -> str:
    if counted != loaded:
        return (
            f"{loaded.trainable:,} of {loaded.total:,} parameters were to be trained, and"
            f" {counted.trainable:,} of {counted.total:,} would be"
        )
    if is_own_model:
        return ""
    is_all = counted.trainable == counted.total
    if config.method.saves == "adapter" and (is_all or not counted.trainable):
        return f"method {config.method.type} would train {counted.trainable:,} parameters of all"
    return ""


def _dtype_problem(
    weights: Counter[str], updated: Counter[str], config: TrainingConfig, *, is_own_model: bool
) -> str:
    method = config.method
    if isinstance(method, QloraMethod) and method.bnb_4bit_quant_type not in weights:
        return f"qlora was asked for, and no weight is in {method.bnb_4bit_quant_type}"
    if is_own_model:
        return ""
    known = {"float32", "bfloat16"} | {getattr(method, "bnb_4bit_quant_type", "float32")}
    if config.model.dtype == "float32":
        known -= {"bfloat16"}
    if strange := weights.keys() - known:
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


def _attention(model: Any) -> str:
    """Return the kernels that the layers dispatch to: each asks its own config at every call."""
    layers = (getattr(module, "config", None) for module in model.modules())
    names = {getattr(one, "_attn_implementation", None) for one in layers}
    return " and ".join(sorted(name for name in names if name)) or "unknown"


def _attention_problem(found: str, config: TrainingConfig) -> str:
    asked = config.model.attention
    if asked == "auto" or found in (asked, "unknown"):
        return ""
    return f"model.attention={asked} was asked for, and the layers use {found}"
