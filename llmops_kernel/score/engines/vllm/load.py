"""Loads vLLM: its environment variables, arguments and errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.hardware import loopback
from llmops_kernel.score.engines.checkpoint import Shapes, check_memory, load_error, shapes_of
from llmops_kernel.score.engines.prompts import context_length
from llmops_kernel.score.engines.protocol import EngineSpec
from llmops_kernel.score.engines.vllm import compat

MAX_LORAS = 4
"""Adapters in one batch; further ones of a job wait for it."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM accepts as the largest one."""
_CPU_CACHE_SHARE, _CPU_CACHE_MAX_BYTES = 0.25, 4 << 30
_NO_LINEAR = ("lm_head", "embed_tokens", "wte", "wpe", "embed_in", "embed_out")


@dataclass(frozen=True)
class Engine:
    """A loaded LLMEngine, and what is known about it."""

    core: Any
    names: Any
    context: int
    base: Shapes
    """Shapes of the model's weights; empty where they are not in a folder."""
    max_rank: int


def load(spec: EngineSpec, on_stats: Callable[[Any], None]) -> Engine:
    """Load the model; `on_stats` gets vLLM's scheduler statistics of each step.

    Raises ModelError, MissingDependencyError.
    """
    if spec.num_gpus <= 0:
        check_memory(spec)
    os.environ.update(_environment(spec))
    names = compat.load()
    base = shapes_of(Path(spec.model)) if Path(spec.model).is_dir() else {}
    try:
        context = _context(spec)
        arguments = _arguments(spec, names, context, base)
        if spec.num_gpus <= 0:
            compat.use_cheap_nan_count()
        # Compiled, a step's groups would be constants.
        if spec.num_gpus <= 0 and arguments.get("enforce_eager"):
            compat.use_grouped_lora(names)
        args = names.EngineArgs(**arguments)
        core = names.LLMEngine.from_engine_args(args, stat_loggers=[_stats(names, on_stats)])
    except LLMOpsError:
        raise
    except Exception as error:  # vLLM raises whatever its parts raise.
        raise load_error(spec, error) from error
    return Engine(core=core, names=names, context=context, base=base, max_rank=_rank(spec))


def _environment(spec: EngineSpec) -> dict[str, str]:
    """Return what vLLM reads when it is imported. What the user has set stays."""
    defaults = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        # On CPUs the engine is in this process, so that none is left when it is killed.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if spec.num_gpus > 0 else "0",
        # All of an engine is on one node: its sockets need no other address.
        "VLLM_HOST_IP": loopback.ADDRESS,
        **loopback.settings(),
        "VLLM_COMPUTE_NANS_IN_LOGITS": "1",
    }
    effective = {name: os.environ.get(name, value) for name, value in defaults.items()}
    return effective | {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def _context(spec: EngineSpec) -> int:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(
        spec.model, revision=spec.revision, trust_remote_code=spec.trust_remote_code
    )
    made_for = getattr(config.get_text_config(), "max_position_embeddings", None)
    return context_length(made_for, spec.max_model_len)


def _arguments(spec: EngineSpec, names: Any, context: int, base: Shapes) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": spec.model,
        "revision": spec.revision,
        "dtype": spec.dtype,
        "trust_remote_code": spec.trust_remote_code,
        "tensor_parallel_size": spec.tensor_parallel,
        "max_model_len": context,
        "max_num_seqs": spec.batch_size,
        "gpu_memory_utilization": spec.gpu_memory,
        "enable_prefix_caching": True,
        "use_tqdm_on_load": False,
        # As the Transformers engine: see grammar.py.
        "structured_outputs_config": names.StructuredOutputsConfig(
            backend="guidance", disable_any_whitespace=True
        ),
    }
    if spec.num_gpus <= 0:
        # Compiling takes minutes and a C++ compiler.
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": _cpu_cache_bytes()}
    if spec.max_lora_rank:
        arguments |= _lora_arguments(spec, base)
    if spec.embeds:
        pooler = names.PoolerConfig(
            seq_pooling_type=(spec.pooling or "mean").upper(), use_activation=spec.is_normalized
        )
        arguments |= {"runner": "pooling", "convert": "embed", "pooler_config": pooler}
    return arguments | spec.options


def _cpu_cache_bytes() -> int:
    free = psutil.virtual_memory().available
    return min(int(free * _CPU_CACHE_SHARE), _CPU_CACHE_MAX_BYTES)


def _rank(spec: EngineSpec) -> int:
    return next((rank for rank in _RANKS if rank >= spec.max_lora_rank), _RANKS[-1])


def _lora_arguments(spec: EngineSpec, base: Shapes) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "enable_lora": True,
        "max_lora_rank": _rank(spec),
        "max_loras": MAX_LORAS,
    }
    if spec.num_gpus <= 0 and base:
        # On CPUs prompt_logprobs fail where lm_head can have an adapter (vLLM 0.32.0: its
        # add_lora_logits expects one row a sequence), so all other layers are named.
        layers = {name.split(".")[-2] for name, shape in base.items() if len(shape) == 2}
        arguments["lora_target_modules"] = sorted(layers.difference(_NO_LINEAR))
    return arguments


def _stats(names: Any, on_stats: Callable[[Any], None]) -> type:
    class Stats(names.StatLoggerBase):
        """Gives each step's statistics away."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

        def record(
            self,
            scheduler_stats: Any,
            iteration_stats: Any,
            mm_cache_stats: Any = None,
            engine_idx: int = 0,
        ) -> None:
            if scheduler_stats is not None:
                on_stats(scheduler_stats)

        def log_engine_initialized(self) -> None:
            pass

    return Stats
