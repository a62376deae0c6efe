"""The products of one training step of a loaded model, as counted from its modules.

Weights are counted by what one token multiplies: k of E experts, nothing of an embedding. A product
of a token with a weight is 2 FLOPs; the backward pass makes one for the input's gradient where
something trained lies below, and one for the weight's own where the weight is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

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
    """Products of the backward pass for the gradients of probabilities and values: 0 to 2."""

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
    """Weights that multiply a token whose logits are computed."""
    head_backward: float
    attention: tuple[AttentionWork, ...]
    recomputed: float = 0.0
    """Weights that multiply a token in addition under activation checkpointing."""
    recomputed_attention: float = 0.0
    """Share of the forward products of attention that is computed in addition: about 0 or 1."""
    adapters: float = 0.0
    """Weights among `forward` that are low-rank adapters' and can be turned off."""

    @property
    def without_gradients(self) -> ModelWork:
        """Return the work of a forward pass alone."""
        layers = (replace(layer, key_gradients=0, value_gradients=0) for layer in self.attention)
        return ModelWork(self.forward, 0.0, self.head_forward, 0.0, attention=tuple(layers))

    @property
    def computed_once(self) -> ModelWork:
        """Return the work without activation checkpointing."""
        return replace(self, recomputed=0.0, recomputed_attention=0.0)

    @property
    def of_reference(self) -> ModelWork:
        """Return the work of a forward pass alone, with the adapter turned off."""
        return replace(self.without_gradients, forward=self.forward - self.adapters)


def required_flops(
    work: ModelWork,
    *,
    tokens: float,
    sum_squared_lengths: float,
    logit_tokens: float | None = None,
    causal: bool = True,
) -> float:
    """Return FLOPs that a step requires (`mfu`): trained weights 6 a token, frozen ones 4 or fewer.

    `sum_squared_lengths`: of L^2 over the sequences. `logit_tokens`: tokens whose logits are
    computed; default all.
    """
    logits = tokens if logit_tokens is None else logit_tokens
    weights = 2.0 * (work.forward + work.backward) * tokens
    head = 2.0 * (work.head_forward + work.head_backward) * logits
    return weights + head + _attention(work, tokens, sum_squared_lengths, causal, gradients=True)


def palm_flops(work: ModelWork, *, tokens: float, sum_squared_lengths: float) -> float:
    """Return FLOPs as other tools credit them (`mfu_palm`): 6 a weight also where frozen, attention
    over the full square, logits of every token.

    PaLM, appendix B (arxiv.org/abs/2204.02311); torchtitan and TRL agree within 2 %.
    """
    forward = 2.0 * (work.forward + work.head_forward) * tokens
    return 3 * (
        forward + _attention(work, tokens, sum_squared_lengths, causal=False, gradients=False)
    )


@dataclass(frozen=True)
class Computed:
    """The input of a model in a step, of all workers together: padding is computed too."""

    tokens: float
    logit_tokens: float
    masked_squares: float
    """Sum of width^2 over the rows of batches with a mask: padded, or of rows in one sequence."""
    plain_squares: float
    """Squares of all other batches."""

    @property
    def squares(self) -> float:
        return self.masked_squares + self.plain_squares


@dataclass(frozen=True)
class Kernel:
    """The products that an attention kernel computes."""

    covers: Literal["square", "earlier", "own"] = "square"
    """Each token with all tokens of the batch's width, with itself and those before it, or with
    those before it in its own row. Blocks on the border are taken for half of one."""
    recomputes: bool = False
    """The backward pass multiplies queries and keys once more, as flash attention does."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of batches without a mask and with one."""

    plain: Kernel = Kernel()
    masked: Kernel = Kernel()

    @property
    def computed_once(self) -> Kernels:
        """Return kernels that cover the same, and keep what these compute once more."""
        return Kernels(*(replace(one, recomputes=False) for one in (self.plain, self.masked)))


EAGER: Final = Kernels()


def executed_flops(
    work: ModelWork,
    computed: Computed,
    kernels: Kernels,
    *,
    tokens: float,
    sum_squared_lengths: float,
) -> float:
    """Return FLOPs that a step executes (`hfu`): with padding, what the attention kernel does not
    leave out, and what activation checkpointing and the kernel's backward pass compute once more.

    `tokens`, `sum_squared_lengths`: of the rows, padding apart.
    """
    weights = 2.0 * (work.forward + work.backward + work.recomputed) * computed.tokens
    head = 2.0 * (work.head_forward + work.head_backward) * computed.logit_tokens
    attention = 0.0
    for kernel, squares in (
        (kernels.plain, computed.plain_squares),
        (kernels.masked, computed.masked_squares),
    ):
        share = squares / computed.squares if squares else 0.0
        for window, width in _widths(work, kernel).items():
            if kernel.covers == "own":
                num_pairs = share * pairs(tokens, sum_squared_lengths, window)
            elif kernel.covers == "earlier" and not _needs_mask(computed, window):
                num_pairs = squares / 2
            else:
                num_pairs = squares
            attention += 2.0 * width * num_pairs
    return weights + head + attention


def _widths(work: ModelWork, kernel: Kernel) -> dict[int | None, float]:
    """Return the widths of all products of attention that are computed, by window."""
    widths: dict[int | None, float] = {}
    for layer in work.attention:
        again = layer.key_width if kernel.recomputes and layer.backward else 0
        width = (1 + work.recomputed_attention) * layer.forward + layer.backward + again
        widths[layer.window] = widths.get(layer.window, 0.0) + width
    return widths


def _needs_mask(computed: Computed, window: int | None) -> bool:
    """Return whether sequences, by their mean width, are too long for a kernel without a mask."""
    return window is not None and computed.squares >= window * computed.tokens


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
