"""LoRA on CPUs, one matrix product for each adapter of a batch.

vLLM's own operation for CPUs (`vllm/lora/ops/torch_ops/lora_ops.py`, 0.32.0) copies an adapter's
matrices for every token of the batch: a prompt of 1,000 tokens copies them 1,000 times, in each
layer. It also gives tokens without an adapter (index -1) the last slot's. Here the tokens are
grouped by adapter once a step. The arithmetic is the same: x A^T in float32, the rest in the
model's type (Hu et al. 2021, arXiv:2106.09685, equation 3, with the scale in B).
"""

from __future__ import annotations

from typing import Any


def groups_of(indices: Any) -> list[tuple[int, Any]]:
    """Return (slot, its tokens) for each adapter in `indices`, an int64 tensor [tokens].

    Tokens are a slice where they follow each other, else an int64 tensor. Index -1 means that a
    token has no adapter.
    """
    found = []
    for slot in indices.unique().tolist():
        if slot < 0:
            continue
        tokens = (indices == slot).nonzero().flatten()
        first, last = int(tokens[0]), int(tokens[-1])
        together = last - first + 1 == len(tokens)
        found.append((slot, slice(first, last + 1) if together else tokens))
    return found


def grouped(base: Any) -> Any:
    """Return a subclass of vLLM's `PunicaWrapperCPU` that multiplies by groups."""

    class GroupedLoRA(base):
        """Punica's wrapper for CPUs; what it does not override is vLLM's."""

        def update_metadata(self, *arguments: Any, **named: Any) -> None:
            """As vLLM's, once a step: which adapter each token has."""
            super().update_metadata(*arguments, **named)
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
