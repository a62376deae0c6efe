"""Counts the tokens that each expert of a mixture of experts is given in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from llmops_kernel.metrics.expert_load import expert_load
from llmops_kernel.train.measure.twin import shape_of


class ExpertCounts:
    """Counts on the device, by hooks on the modules that hold a layer's experts.

    What is counted is what is computed: the experts that the router chose for each token, in
    training only, without the padding that the batch's attention mask leaves out. Recomputation by
    activation checkpointing counts a layer's tokens twice, which changes no share.
    """

    def __init__(self, network: nn.Module, experts: Mapping[str, nn.Module]) -> None:
        self._mask: torch.Tensor | None = None
        self._sizes = [int(module.num_experts) for module in experts.values()]
        self._counts: list[torch.Tensor | None] = [None] * len(self._sizes)
        network.register_forward_pre_hook(self._note_mask, with_kwargs=True)
        for index, module in enumerate(experts.values()):
            module.register_forward_pre_hook(self._counter(index), with_kwargs=True)

    @classmethod
    def of(cls, network: nn.Module) -> ExpertCounts | None:
        """Return the counter of a model, before it is wrapped; None for one without experts."""
        experts = dict(_experts(network))
        return cls(network, experts) if experts else None

    def _note_mask(self, _: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        mask = kwargs.get("attention_mask")
        self._mask = mask if isinstance(mask, torch.Tensor) and mask.ndim == 2 else None

    def _counter(self, index: int) -> Any:
        def count(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
            indices = _chosen((*args, *kwargs.values())) if module.training else None
            if indices is None:
                return
            # One more place: where experts are spread over devices, it stands for those elsewhere.
            counts = self._counts[index]
            if counts is None:
                counts = torch.zeros(
                    self._sizes[index] + 1, dtype=torch.int64, device=indices.device
                )
                self._counts[index] = counts
            counts.scatter_add_(0, indices.reshape(-1).long(), self._weights(indices))

        return count

    def _weights(self, indices: torch.Tensor) -> torch.Tensor:
        """Return 1 for each choice of a token, 0 for those of padding."""
        ones = torch.ones_like(indices, dtype=torch.int64)
        if self._mask is not None and self._mask.numel() == indices.shape[0]:
            ones = ones * self._mask.reshape(-1, 1).to(ones)
        return ones.reshape(-1)

    def reduce(self, device: torch.device) -> dict[str, float]:
        """Return the load of the step, of all workers together, and begin the next step.

        All workers call it alike: it is one collective of an integer an expert.
        """
        total = torch.zeros(sum(self._sizes), dtype=torch.int64, device=device)
        for counts, place in zip(self._counts, total.split(self._sizes), strict=True):
            if counts is not None:
                place += counts[:-1].to(device)
        self._counts = [None] * len(self._sizes)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(total)
        return expert_load([place.tolist() for place in total.cpu().split(self._sizes)])


def _experts(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules whose own weights are those of several experts, one behind the other."""
    for path, module in network.named_modules():
        count = getattr(module, "num_experts", None)
        if isinstance(count, int) and count > 1:
            shapes = [shape_of(parameter) for parameter in module.parameters(recurse=False)]
            if any(len(shape) == 3 and shape[0] == count for shape in shapes):
                yield path, module


def _chosen(tensors: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the indices of the experts, (tokens, experts a token), among a call's arguments."""
    for tensor in tensors:
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.ndim == 2
            and not tensor.dtype.is_floating_point
        ):
            return tensor
    return None
