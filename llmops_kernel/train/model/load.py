"""Load the model, prepared by the config's method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pickle import UnpicklingError
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import HookError, LLMOpsError
from llmops_kernel.models.source import pickle_refused
from llmops_kernel.train.hooks import Hooks, call
from llmops_kernel.train.model.kept import Keeping, Loaded
from llmops_kernel.train.model.tokenizer import load_error


@dataclass(frozen=True)
class ParameterCount:
    total: int
    trainable: int


def load_model(
    source: str,
    config: TrainingConfig,
    hooks: Hooks,
    *,
    keeping: Keeping | str = "",
    say: Callable[[str], object] = str,
) -> Any:
    """Return the model in its storage dtype, prepared by the config's method.

    With `keeping` it may be mapped instead of read; `say` gets words on that. Raises ModelError,
    HookError.
    """
    if hooks.build_model is not None:
        model = call(hooks.build_model, config)
        if not isinstance(model, torch.nn.Module):
            raise HookError(
                f"build_model returned a {type(model).__name__}.",
                remedy="return a torch.nn.Module, such as a Transformers model",
            )
    else:
        model = _own(source, config, keeping, say)
    if hasattr(model, "config"):
        model.config.use_cache = False
    model = _prepare(model, config)
    if config.method.saves == "adapter" and hooks.build_model is None:
        _skip_frozen_in_ddp(model)
    return model


def _prepare(model: Any, config: TrainingConfig) -> Any:
    """Mark what the method trains, and add what it adds. Raises ModelError."""
    module, _, function = config.method.apply.partition(":")
    return getattr(import_module(module), function)(model, config)


def _loading(config: TrainingConfig) -> dict[str, Any]:
    """Return how the method loads weights, such as in 4 bits."""
    module, _, function = config.method.load.partition(":")
    return getattr(import_module(module), function)(config) if function else {}


def _skip_frozen_in_ddp(model: Any) -> None:
    """Every rank reads the frozen weights from the same file: DDP need not send rank 0's."""
    frozen = [name for name, one in model.named_parameters() if not one.requires_grad]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)


def _own(
    source: str, config: TrainingConfig, keeping: Keeping | str, say: Callable[[str], object]
) -> Any:
    if isinstance(keeping, str):
        say(f"read from its files, not kept: {keeping}" if keeping else "")
        return _from_pretrained(source, config)[0]
    model, words = keeping.model(lambda: _from_pretrained(source, config))
    say(words)
    return model


def _from_pretrained(source: str, config: TrainingConfig) -> Loaded:
    attention = config.model.attention  # Transformers' own choice knows what the model can do
    try:
        found: Loaded = AutoModelForCausalLM.from_pretrained(
            source,
            output_loading_info=True,
            revision=config.model.revision,
            trust_remote_code=config.model.trust_remote_code,
            dtype=_storage_dtype(config),
            attn_implementation=None if attention == "auto" else attention,
            **_loading(config),
        )
        return found
    except LLMOpsError:
        raise
    except UnpicklingError as error:
        raise pickle_refused(config.model.id) from error
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise load_error("model", config, error) from error


def _storage_dtype(config: TrainingConfig) -> torch.dtype:
    """Full training without DeepSpeed keeps fp32 weights under bf16 autocast.

    Otherwise AdamW would update bf16 weights directly and lose small updates. DeepSpeed keeps
    its own fp32 master copy, and LoRA's frozen weights are never updated.
    """
    if config.model.dtype == "float32":
        return torch.float32
    has_copy = isinstance(config.parallelism, ZeroStrategy)
    plain_full = config.method.saves == "model" and not has_copy
    return torch.float32 if plain_full else torch.bfloat16


def count_parameters(model: Any) -> ParameterCount:
    """Count parameters, those that ZeRO-3 has sharded and those packed into 4 bits too."""
    total = trainable = 0
    for parameter in model.parameters():
        size = _size(parameter)
        total += size
        trainable += size if parameter.requires_grad else 0
    return ParameterCount(total, trainable)


def _size(parameter: Any) -> int:
    quantised = getattr(parameter, "quant_state", None)
    if quantised is not None:  # bitsandbytes: two weights in each byte
        return int(math.prod(quantised.shape))
    return int(getattr(parameter, "ds_numel", parameter.numel()))  # numel() is 0 under ZeRO-3
