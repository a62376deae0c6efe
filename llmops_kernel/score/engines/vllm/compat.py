"""The names of vLLM that we use beyond `LLM` and `SamplingParams`, checked on 0.32.0.

vLLM calls some of it internal, and may rename any of it in a release: each name stands here only.
`LLMEngine` is what its offline `LLM` is made of; unlike `LLM.generate` it takes requests while it
works, so that one engine serves several jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from llmops_kernel.errors import MissingDependencyError, ModelError
from llmops_kernel.hardware.precision import DeviceFacts

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


# --- Patches that make vLLM faster on CPUs: one LoRA product per adapter, a cheap test for NaN ---


# --- LoRA on CPUs, one matrix product for each adapter of a batch ---
# vLLM's own operation for CPUs (`vllm/lora/ops/torch_ops/lora_ops.py`, 0.32.0) copies an
# adapter's matrices for every token of the batch: a prompt of 1,000 tokens copies them 1,000
# times, in each layer. It also gives tokens without an adapter (index -1) the last slot's. Here
# the tokens are grouped by adapter once a step. The arithmetic is the same: x A^T in float32, the
# rest in the model's type (Hu et al. 2021, arXiv:2106.09685, equation 3, with the scale in B).


def groups_of(indices: Any) -> list[tuple[int, Any]]:
    """Return (slot, its tokens) for each adapter in `indices`, an int64 tensor [tokens].

    Tokens are a slice where they follow each other, else an int64 tensor. Index -1 means that a
    token has no adapter.
    """
    groups = []
    for slot in indices.unique().tolist():
        if slot < 0:
            continue
        tokens = (indices == slot).nonzero().flatten()
        first, last = int(tokens[0]), int(tokens[-1])
        together = last - first + 1 == len(tokens)
        groups.append((slot, slice(first, last + 1) if together else tokens))
    return groups


def grouped(base: Any) -> Any:
    """Return a subclass of vLLM's `PunicaWrapperCPU` that multiplies by groups."""

    class GroupedLoRA(base):
        """Punica's wrapper for CPUs; what it does not override is vLLM's."""

        def update_metadata(self, *arguments: Any, **keywords: Any) -> None:
            """Note which adapter each token has; called by vLLM once a step."""
            super().update_metadata(*arguments, **keywords)
            self._groups = groups_of(self.token_lora_indices)

        def add_lora_linear(
            self,
            y: Any,
            x: Any,
            lora_a_stacked: tuple[Any, ...],
            lora_b_stacked: tuple[Any, ...],
            scale: float,
            output_slices: tuple[int, ...],
            **_: Any,
        ) -> None:
            """Add each slice's `scale * x A^T B^T` to its columns of `y`, in place.

            Shapes: y [tokens, sum(output_slices)], x [tokens, in], A [slots, 1, rank, in],
            B [slots, 1, out, rank].
            """
            for slot, tokens in self._groups:
                begin, mine = 0, x[tokens].float()
                for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                    low = (mine @ a[slot, 0].float().t()).mul_(scale).to(y.dtype)
                    y[tokens, begin : begin + width] += low @ b[slot, 0].t().to(y.dtype)
                    begin += width

    return GroupedLoRA


# --- NaN in logits on CPUs ---
# vLLM counts the NaN of every row in every step (`count_nans_per_row` in
# `vllm/v1/worker/gpu_model_runner.py`, 0.32.0). On a CPU that makes a tensor of truth values and
# adds it up as integers: a tenth of a step of a small model. A row's sum says the same, as a NaN
# stays one when anything is added to it (IEEE 754-2019, 6.2); only then are they counted.


def counted_where_found(count: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `count`, called only for logits on a CPU that have a NaN, and for those elsewhere.

    It takes logits [rows, vocabulary] and returns int32 [rows]. Infinities of both signs in a row
    also add up to NaN: then `count` decides.
    """

    def count_nans_per_row(logits: Any) -> Any:
        if logits.device.type != "cpu":
            return count(logits)
        sums = logits.sum(dim=-1)
        if bool(sums.isnan().any()):
            return count(logits)
        return sums.new_zeros(sums.shape).int()

    return count_nans_per_row
