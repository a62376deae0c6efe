"""The names of vLLM that we use beyond `LLM` and `SamplingParams`, checked on 0.32.0.

vLLM calls some of it internal, and may rename any of it in a release: each name stands here only.
`LLMEngine` is what its offline `LLM` is made of; unlike `LLM.generate` it takes requests while it
works, so that one engine serves several jobs.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from llmops_kernel.errors import MissingDependencyError, ModelError
from llmops_kernel.hardware.precision import DeviceFacts
from llmops_kernel.score.engines.vllm.cpu import counted_where_found, grouped

CHECKED_ON = "0.32.0"
_CPU_LORA = "vllm.lora.punica_wrapper.punica_cpu"
_RUNNER = "vllm.v1.worker.gpu_model_runner"
NAMES = {
    "LLMEngine": "vllm.v1.engine.llm_engine",
    "EngineArgs": "vllm.engine.arg_utils",
    "SamplingParams": "vllm.sampling_params",
    "StructuredOutputsParams": "vllm.sampling_params",
    "RequestOutputKind": "vllm.sampling_params",
    "MAX_LOGPROB_TOKEN_IDS": "vllm.sampling_params",
    "PoolingParams": "vllm.pooling_params",
    "PoolerConfig": "vllm.config.pooler",
    "StructuredOutputsConfig": "vllm.config.structured_outputs",
    "LoRARequest": "vllm.lora.request",
    "tokens_input": "vllm.inputs.engine",
    "VLLMValidationError": "vllm.exceptions",
    "StatLoggerBase": "vllm.v1.metrics.loggers",
    "PunicaWrapperCPU": _CPU_LORA,
}
"""Name -> the module that has it."""


def load() -> Any:
    """Return the names as attributes. Raises MissingDependencyError, ModelError."""
    try:
        import vllm
    except ImportError as error:
        raise MissingDependencyError(
            f"vLLM cannot be imported here: {error}",
            remedy="run `llmops score-env`, which makes an environment for it, or set"
            " engine.type to transformers",
        ) from error
    names = {}
    for name, module in NAMES.items():
        try:
            names[name] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ModelError(
                f"vLLM {vllm.__version__} has no {module}.{name}; the engine was checked on"
                f" vLLM {CHECKED_ON}.",
                remedy=f"install vLLM {CHECKED_ON} (`llmops score-env --remove`, then"
                " `llmops score-env`), or set engine.type to transformers",
            ) from error
    return SimpleNamespace(**names)


def gpu_facts() -> DeviceFacts:
    """Return the facts of the GPU as vLLM's platform has them.

    PyTorch would initialise CUDA here, and vLLM starts processes of its own for GPUs.
    """
    import torch

    module: Any = import_module("vllm.platforms")
    platform = module.current_platform
    try:
        platform.check_if_supports_dtype(torch.bfloat16)
    except ValueError:
        has_bf16 = False
    else:
        has_bf16 = True
    return DeviceFacts(name=str(platform.get_device_name()), is_gpu=True, has_bf16=has_bf16)


def use_grouped_lora(names: Any) -> None:
    """Make engines that are loaded in this process use `cpu_lora`.

    vLLM looks the class up by this name when it loads a model.
    """
    if names.PunicaWrapperCPU.__module__ == _CPU_LORA:
        module: Any = import_module(_CPU_LORA)
        module.PunicaWrapperCPU = grouped(names.PunicaWrapperCPU)


def use_cheap_nan_count() -> None:
    """Make engines of this process use `cpu_nans`; a vLLM that counts elsewhere stays as it is.

    vLLM's runner for CPUs is a subclass of the one in this module, which engines on GPUs have in
    processes of their own: so it is not among `NAMES`.
    """
    module: Any = import_module(_RUNNER)
    count: Any = getattr(module, "count_nans_per_row", None)
    if getattr(count, "__module__", "") == _RUNNER:
        module.count_nans_per_row = counted_where_found(count)


def shut_down(engine: Any) -> None:
    """End the processes of an LLMEngine; in this process, free its memory."""
    core = getattr(engine, "engine_core", None)
    if core is not None:
        core.shutdown()
