"""A copy of a model without memory, on PyTorch's `meta` device, to count what it multiplies.

Only the module tree is copied. Of equal layers in a row the copy keeps two: the first, which in
LoRA may need fewer gradients, and one that stands for the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import nn

ADAPTERS = "llmops_adapter_weights"
"""Attribute of experts in a twin: weights of the adapters of one of them."""
_KEPT_OF_A_RUN = 2


@dataclass(frozen=True)
class Twin:
    module: nn.Module
    layer_path: str
    """Path of the list of layers: `model.layers`; empty where there is none."""
    represents: tuple[tuple[int, ...], ...]
    """For each kept layer the indices in the model that it stands for."""


def make_twin(model: nn.Module) -> Twin:
    """Copy the module tree to `meta`; the model itself is not changed."""
    layer_path, layers = find_layers(model)
    represents = tuple(_representatives(layers))
    kept_indices = {indices[0] for indices in represents}
    memo: dict[int, Any] = {
        id(layer): _Dropped() for index, layer in enumerate(layers) if index not in kept_indices
    }
    for module in _without(model, set(memo)):
        for parameter in module.parameters(recurse=False):
            memo[id(parameter)] = nn.Parameter(
                _empty(parameter), requires_grad=parameter.requires_grad
            )
        for tensor in _other_tensors(module):
            memo.setdefault(id(tensor), _empty(tensor))
    twin = copy.deepcopy(model, memo)
    if layer_path:
        parent_path, _, name = layer_path.rpartition(".")
        rest = [
            member for member in twin.get_submodule(layer_path) if not isinstance(member, _Dropped)
        ]
        setattr(twin.get_submodule(parent_path), name, nn.ModuleList(rest))
    _make_plain(twin)
    _use_countable_kernels(twin)
    return Twin(twin.train(), layer_path, represents)


def find_layers(model: nn.Module) -> tuple[str, list[nn.Module]]:
    """Return path and modules of the longest list whose members all have attention."""
    longest: tuple[str, list[nn.Module]] = ("", [])
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or len(module) <= len(longest[1]):
            continue
        if all(_has_attention(layer) for layer in module):
            longest = (path, list(module))
    return longest


def _has_attention(layer: nn.Module) -> bool:
    return any("Attention" in type(part).__name__ for part in layer.modules())


def attention_modules(layer: nn.Module) -> dict[str, nn.Module]:
    """Return the innermost modules whose class is named after attention, by path."""
    modules = {
        path: module
        for path, module in layer.named_modules()
        if "Attention" in type(module).__name__ and any(module.children())
    }
    return {
        path: module
        for path, module in modules.items()
        if not any(inner.startswith(f"{path}.") for inner in modules)
    }


def signature(module: nn.Module) -> tuple[Any, ...]:
    """Return the facts that the module's work depends on: classes, weights' sizes and training."""
    # Of each module alone; `named_parameters` would take several times as long.
    return tuple(
        (
            path,
            type(part),
            [
                (name, shape_of(parameter), parameter.requires_grad)
                for name, parameter in parameters.items()
            ],
        )
        for path, part in module.named_modules()
        if (
            parameters := {
                name: parameter
                for name, parameter in part._parameters.items()
                if parameter is not None
            }
        )
        or not path
    )


def shape_of(parameter: Any) -> torch.Size:
    """Return the whole weight's shape; ZeRO-3 leaves an empty tensor in its place."""
    shape: torch.Size = getattr(parameter, "ds_shape", None) or parameter.shape
    return shape


def _representatives(layers: list[nn.Module]) -> Iterator[tuple[int, ...]]:
    start = 0
    for _, equal in groupby(layers, key=signature):
        indices = tuple(range(start, start + len(list(equal))))
        start += len(indices)
        yield indices[:1]
        if len(indices) >= _KEPT_OF_A_RUN:
            yield indices[1:]


class _Dropped(nn.Module):
    """Stands in the copy for a layer that another one represents."""


def _empty(tensor: Any) -> torch.Tensor:
    return torch.empty(shape_of(tensor), dtype=tensor.dtype, device="meta")


def _without(module: nn.Module, dropped: set[int]) -> Iterator[nn.Module]:
    """Yield all modules below, but nothing of those that are dropped."""
    yield module
    for child in module.children():
        if id(child) not in dropped:
            yield from _without(child, dropped)


def _other_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.buffers(recurse=False)
    yield from (value for value in vars(module).values() if isinstance(value, torch.Tensor))


def _make_plain(twin: nn.Module) -> None:
    """Replace layers with quantised weights by plain ones of the same sizes.

    Also adapters' dropout, with which PEFT multiplies by the weights of DoRA's layers twice.
    """
    module: Any
    for path, module in list(twin.named_modules()):
        if _is_expert_wrapper(module):
            continue  # Replaced with all wrappers inside it, a moment ago.
        for name, child in module.named_children():
            if path.endswith(".lora_dropout"):
                module[name] = nn.Identity()
            elif _is_expert_wrapper(child):
                setattr(module, name, _without_adapters(child))
            elif type(child).__module__.startswith("bitsandbytes.") and isinstance(
                child, nn.Linear
            ):
                setattr(module, name, _plain_linear(child))


def _is_expert_wrapper(module: Any) -> bool:
    """Return whether PEFT has put adapters around one of a module's parameters."""
    return hasattr(module, "parameter_name") and hasattr(module, "lora_A")


def _without_adapters(wrapper: Any) -> nn.Module:
    """Return the experts inside PEFT's wrapper, and note on them the adapters' size.

    PEFT adds these adapters to the whole weights, which is more work than they require, and cannot
    be done on `meta`. That they are trained is kept: the output needs a gradient.
    """
    size = 0.0
    while hasattr(wrapper, "parameter_name"):
        pair = [*wrapper.lora_A.values(), *wrapper.lora_B.values()]
        size += sum(matrix.weight.numel() for matrix in pair) / (wrapper.num_experts or 1)
        wrapper = wrapper.base_layer
    experts: nn.Module = wrapper
    setattr(experts, ADAPTERS, size)
    anchor = nn.Parameter(torch.zeros((), device="meta"))
    experts.register_forward_hook(lambda module, args, output: _add(output, anchor))
    return experts


def _add(output: Any, anchor: nn.Parameter) -> Any:
    if isinstance(output, tuple):
        return tuple(_add(item, anchor) for item in output)
    is_number = isinstance(output, torch.Tensor) and output.dtype.is_floating_point
    return output + anchor if is_number else output


def _plain_linear(child: Any) -> nn.Linear:
    plain = nn.Linear(
        child.in_features, child.out_features, bias=child.bias is not None, device="meta"
    )
    return plain.requires_grad_(requires_grad=False)


def _use_countable_kernels(twin: nn.Module) -> None:
    """Use kernels that FlopCounterMode sees: plain products, and no experts by tokens' values."""
    configs = {
        id(settings): settings
        for module in twin.modules()
        if (settings := getattr(module, "config", None))
    }
    for config in configs.values():
        for name, value in (
            ("_attn_implementation", "eager"),
            ("_experts_implementation", "batched_mm"),
            ("use_cache", False),
        ):
            if hasattr(config, name):
                setattr(config, name, value)


# --- Records of the weights that a forward pass multiplies ---


@dataclass(frozen=True)
class Use:
    """A call of a module that multiplies its input with a matrix of its own."""

    path: str
    weights: float
    rows: float
    """Vectors that were multiplied; of experts one per token and chosen expert."""
    trained: bool
    input_gradient: bool
    """Something that is trained lies below, so the backward pass goes on to the input."""
    executed: bool = True
    """False for adapters of experts, which the twin leaves out: required, but not to be seen."""

    @property
    def backward(self) -> float:
        return self.weights * (self.trained + self.input_gradient)


@dataclass
class Recorder:
    """The uses of one forward pass, in order, and whether some outputs need a gradient."""

    uses: list[Use]
    needs_gradient: dict[str, bool]
    """By path of a module: its output needs one."""


@contextmanager
def recording(model: nn.Module) -> Iterator[Recorder]:
    """Record the forward passes of `model` inside the block."""
    recorder = Recorder([], {})
    hooks = [
        module.register_forward_hook(_hook(recorder, path, matrices), with_kwargs=True)
        for path, module, matrices in _multiplying(model)
    ]
    hooks += [
        module.register_forward_hook(_note_gradient(recorder, path))
        for path, module in model.named_modules()
        if path.rpartition(".")[2] in ("q_proj", "k_proj", "v_proj")
    ]
    try:
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class _Matrices:
    weights: float
    """Weights that one row multiplies."""
    trained: bool
    is_experts: bool
    adapters: float
    """Weights of PEFT's adapters of one expert."""


def _multiplying(model: nn.Module) -> Iterator[tuple[str, nn.Module, _Matrices]]:
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.LayerNorm):
            continue
        parameters = {
            name: parameter
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.ndim >= 2 and "bias" not in name
        }
        if parameters:
            yield path, module, _matrices(module, parameters)


def _matrices(module: nn.Module, parameters: Mapping[str, nn.Parameter]) -> _Matrices:
    is_experts = not isinstance(module, nn.modules.conv._ConvNd) and all(
        parameter.ndim == 3 for parameter in parameters.values()
    )
    size = sum(
        parameter.numel() / (parameter.shape[0] if is_experts else 1)
        for parameter in parameters.values()
    )
    trained = any(parameter.requires_grad for parameter in parameters.values())
    return _Matrices(size, trained, is_experts, getattr(module, ADAPTERS, 0.0))


def _hook(recorder: Recorder, path: str, matrices: _Matrices) -> Any:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if not tensors or not tensors[0].shape:
            return
        inputs = tensors[0]
        rows = float(inputs.numel() // inputs.shape[-1])
        if isinstance(module, nn.modules.conv._ConvNd) and isinstance(output, torch.Tensor):
            rows = float(output.numel() // output.shape[1])
        if matrices.is_experts:
            rows *= _chosen(tensors[1:])
        use = Use(path, matrices.weights, rows, matrices.trained, inputs.requires_grad)
        recorder.uses.append(use)
        if matrices.adapters:
            adapters = Use(f"{path}.adapters", matrices.adapters, rows, True, True, executed=False)
            recorder.uses.append(adapters)

    return hook


def _chosen(tensors: list[torch.Tensor]) -> int:
    """Return experts per token: the width of the first tensor of indices."""
    for tensor in tensors:
        if not tensor.dtype.is_floating_point and tensor.ndim >= 2:
            return int(tensor.shape[-1])
    return 1


def _note_gradient(recorder: Recorder, path: str) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            recorder.needs_gradient[path] = output.requires_grad

    return hook
