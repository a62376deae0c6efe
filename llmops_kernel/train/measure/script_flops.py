"""FLOPs of a model that a script has loaded, counted from its modules where that is safe.

A script may have wrapped, sharded and hooked its model in any way. Counting runs a copy of it
without memory, so code of the script must not be among what the copy would call.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from llmops_kernel.metrics.model_work import ModelWork, required_flops
from llmops_kernel.train.measure.module_work import count_work
from llmops_kernel.train.measure.step_flops import WorkFile, work_key
from llmops_kernel.train.measure.twin import make_twin

_LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel")
"""Suffixes of language models; whether a token of another model looks at later ones is unknown."""
_LIBRARIES = ("torch.", "transformers.", "peft.")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def script_flops(model: nn.Module, *, cache: Path | None) -> Callable[[int, float], float] | None:
    """Return (tokens, sum of squared lengths) -> FLOPs of all workers; None if not countable.

    Takes a fraction of a second, once a model and a machine. Never raises: the script goes on.
    """
    try:
        if not _is_safe(model):
            return None
        work = _counted(model, cache)
    except Exception:  # Any code of any model runs here.
        return None
    if work is None:
        return None
    return lambda tokens, squares: required_flops(work, tokens=tokens, sum_squared_lengths=squares)


def _counted(model: nn.Module, cache: Path | None) -> ModelWork | None:
    file = WorkFile(work_key(model, checkpointing=False), cache)
    if (cached := file.read()) is not None:
        return cached
    count = count_work(make_twin(model))
    if not count.agrees:
        return None
    file.write(count.work)
    return count.work


def _is_safe(model: Any) -> bool:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not type(base).__name__.endswith(_LANGUAGE_MODELS) or hasattr(base, "hf_device_map"):
        return False
    # Weights of FSDP and ZeRO-3: the copy's hooks would wait for the other workers.
    if any(
        hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id")
        for parameter in model.parameters()
    ):
        return False
    return all(
        str(getattr(hook, "__module__", "")).startswith(_LIBRARIES)
        for module in model.modules()
        for kind in _HOOKS
        for hook in (getattr(module, kind, None) or {}).values()
    )
