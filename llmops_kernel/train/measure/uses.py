"""Records which weights a forward pass multiplies, how often and what gradients that needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmops_kernel.train.measure.twin import ADAPTERS


@dataclass(frozen=True)
class Use:
    """One call of a module that multiplies its input with a matrix of its own."""

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
    """That one row multiplies."""
    trained: bool
    is_experts: bool
    adapters: float
    """Weights of PEFT's adapters of one expert."""


def _multiplying(model: nn.Module) -> Iterator[tuple[str, nn.Module, _Matrices]]:
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.LayerNorm):
            continue
        own = {
            name: one
            for name, one in module.named_parameters(recurse=False)
            if one.ndim >= 2 and "bias" not in name
        }
        if own:
            yield path, module, _matrices(module, own)


def _matrices(module: nn.Module, own: Mapping[str, nn.Parameter]) -> _Matrices:
    is_experts = not isinstance(module, nn.modules.conv._ConvNd) and all(
        one.ndim == 3 for one in own.values()
    )
    size = sum(one.numel() / (one.shape[0] if is_experts else 1) for one in own.values())
    trained = any(one.requires_grad for one in own.values())
    return _Matrices(size, trained, is_experts, getattr(module, ADAPTERS, 0.0))


def _hook(recorder: Recorder, path: str, matrices: _Matrices) -> Any:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        if not tensors or not tensors[0].shape:
            return
        given = tensors[0]
        rows = float(given.numel() // given.shape[-1])
        if isinstance(module, nn.modules.conv._ConvNd) and isinstance(output, torch.Tensor):
            rows = float(output.numel() // output.shape[1])
        if matrices.is_experts:
            rows *= _chosen(tensors[1:])
        use = Use(path, matrices.weights, rows, matrices.trained, given.requires_grad)
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
