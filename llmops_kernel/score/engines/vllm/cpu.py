"""Patches that make vLLM faster on CPUs: one LoRA product per adapter, a cheap test for NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
