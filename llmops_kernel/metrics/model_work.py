"""The products of one training step of a loaded model, as counted from its modules.

Weights are counted by what one token multiplies: k of E experts, nothing of an embedding. A product
of a token with a weight is 2 FLOPs; the backward pass makes one for the input's gradient where
something trained lies below, and one for the weight's own where the weight is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

from llmops_kernel.metrics.flops import pairs


@dataclass(frozen=True)
class AttentionWork:
    """The attention of one layer."""

    window: int | None
    """Sliding window in tokens; None looks at the whole sequence."""
    key_width: int
    """Heads times the size of a query and a key."""
    value_width: int
    """Heads times the size of a value."""
    key_gradients: int = 2
    """Products of the backward pass for the gradients of queries and keys: 0 to 2."""
    value_gradients: int = 2
    """The same for probabilities and values."""

    @property
    def forward(self) -> int:
        return self.key_width + self.value_width

    @property
    def backward(self) -> int:
        return self.key_gradients * self.key_width + self.value_gradients * self.value_width


@dataclass(frozen=True)
class ModelWork:
    """Weights that multiply one token, and the attention of each layer."""

    forward: float
    """Without the head's."""
    backward: float
    head_forward: float
    """Of a token whose logits are computed."""
    head_backward: float
    attention: tuple[AttentionWork, ...]
    recomputed: float = 0.0
    """Weights that multiply a token once more under activation checkpointing."""
    recomputed_attention: float = 0.0
    """How often the forward products of attention are computed once more: 0 or 1."""


def required_flops(
    work: ModelWork,
    *,
    tokens: float,
    sum_squared_lengths: float,
    logit_tokens: float | None = None,
    causal: bool = True,
) -> float:
    """FLOPs that a step requires (`mfu`): trained weights 6 a token, frozen ones 4 or fewer.

    `sum_squared_lengths`: of L^2 over the sequences. `logit_tokens`: tokens whose logits are
    computed; default all.
    """
    logits = tokens if logit_tokens is None else logit_tokens
    weights = 2.0 * (work.forward + work.backward) * tokens
    head = 2.0 * (work.head_forward + work.head_backward) * logits
    return weights + head + _attention(work, tokens, sum_squared_lengths, causal, gradients=True)


def palm_flops(work: ModelWork, *, tokens: float, sum_squared_lengths: float) -> float:
    """FLOPs as other tools credit them (`mfu_palm`): 6 a weight also where it is frozen, attention
    over the full square, logits of every token.

    PaLM, appendix B (arxiv.org/abs/2204.02311); torchtitan and TRL agree within 2 %.
    """
    forward = 2.0 * (work.forward + work.head_forward) * tokens
    return 3 * (
        forward + _attention(work, tokens, sum_squared_lengths, causal=False, gradients=False)
    )


def executed_flops(
    work: ModelWork,
    *,
    tokens: float,
    sum_squared_lengths: float,
    logit_tokens: float | None = None,
    causal: bool = True,
) -> float:
    """FLOPs with those that activation checkpointing computes once more (`hfu`)."""
    again = 2.0 * work.recomputed * tokens + work.recomputed_attention * _attention(
        work, tokens, sum_squared_lengths, causal, gradients=False
    )
    return again + required_flops(
        work,
        tokens=tokens,
        sum_squared_lengths=sum_squared_lengths,
        logit_tokens=logit_tokens,
        causal=causal,
    )


def _attention(
    work: ModelWork, tokens: float, squares: float, causal: bool, *, gradients: bool
) -> float:
    total = 0.0
    widths: dict[int | None, int] = {}
    for layer in work.attention:
        width = layer.forward + (layer.backward if gradients else 0)
        widths[layer.window] = widths.get(layer.window, 0) + width
    for window, width in widths.items():
        total += 2.0 * width * (pairs(tokens, squares, window) if causal else squares)
    return total
