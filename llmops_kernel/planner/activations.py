"""What autograd keeps of a forward pass: bytes for each operation of a decoder layer.

The rules are those of PyTorch 2.13's operations in Transformers 5.23's modules: a product keeps
what the gradients that somebody needs are computed from, a norm its input in float32. They were
read from the tensors that `torch.autograd.graph.saved_tensors_hooks` sees, and are compared with
whole traced steps in the tests. The classic count for one architecture: Korthikanti et al.,
arXiv 2205.05198.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llmops_kernel.metrics.shapes import Layer, Linear
from llmops_kernel.planner.architecture import Architecture

FLOAT32 = 4
BFLOAT16 = 2
INDEX = 8
"""Bytes of an integer that chooses a token or an expert."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The number formats of a step, in bytes, and what is trained."""

    compute: int
    """What matrix products read and write."""
    residual: int
    """What flows between layers."""
    casts: bool = False
    """Autocast from float32 weights: each product makes copies of its input and its weights."""
    trains_base: bool = True
    """The model's own weights are trained."""
    adapter_copies: bool = False
    """Adapters of float32 beside a stream of bfloat16: each makes a copy of its input."""
    dropout: bool = False
    """Dropout before each adapter."""
    dropout_mask: int = 1
    """Bytes that dropout keeps of a number: its mask on GPUs, the factors themselves on CPUs."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The sequences of one forward pass of one worker, all of one length."""

    sequences: int
    length: int
    is_padded: bool = True
    """An attention mask is given, so that `sdpa` keeps one and repeats keys for each head."""

    @property
    def tokens(self) -> int:
        return self.sequences * self.length


Attention = Literal["eager", "sdpa", "flash"]
Rank = Callable[[Linear], int]
"""The rank of a layer's adapter; 0 where it has none."""


@dataclass(frozen=True)
class LayerMemory:
    """Bytes of one decoder layer on one worker."""

    kept: float
    """Kept from the forward pass for the backward pass."""
    copies: float
    """Weights in the format of the computation, kept besides."""
    backward: float
    """Most that the backward pass holds at once besides, without gradients of weights."""


def layer_memory(
    architecture: Architecture,
    layer: Layer,
    batch: Batch,
    numbers: Numbers,
    *,
    attention: Attention,
    rank: Rank,
) -> LayerMemory:
    """Return what one layer keeps of a batch, its own input not included."""
    walk = _Walk(architecture, layer, batch, numbers, attention, rank)
    per_token = walk.norms() + walk.products() + walk.attention_core() + walk.mlp_core()
    return LayerMemory(
        kept=per_token * batch.tokens + walk.mask(),
        copies=walk.weight_copies(),
        backward=walk.backward() * batch.tokens,
    )


def norm(
    width: int,
    given: int,
    *,
    is_trained: bool,
    kind: Literal["rms", "rms32", "layer"],
    parts: int = 1,
) -> float:
    """Return bytes a token that a norm keeps.

    `given`: bytes of a number of its input. `parts`: pieces of `width` that are scaled apart.
    """
    if kind == "layer":
        return width * given + 2 * given
    # The input in float32 (itself, where it is that), the scale, and what the weight multiplies.
    multiplied = 0 if not is_trained else FLOAT32 if kind == "rms32" else given
    return width * (FLOAT32 + multiplied) + parts * FLOAT32


@dataclass(frozen=True)
class _Walk:
    """The operations of a layer. Each method returns bytes a token, unless it says otherwise."""

    architecture: Architecture
    layer: Layer
    batch: Batch
    numbers: Numbers
    attention: Attention
    rank: Rank

    def norms(self) -> float:
        architecture, numbers = self.architecture, self.numbers
        traits, trained = architecture.traits, numbers.trains_base
        hidden = traits.norms * norm(
            architecture.hidden, numbers.residual, is_trained=trained, kind=traits.norm
        )
        widths = [(width, 1) for width in architecture.latents]
        if traits.head_norms:
            size = architecture.query_width // architecture.heads
            by_head = traits.head_norms == "head"
            widths += [
                (width, width // size if by_head else 1)
                for width in (architecture.query_width, architecture.key_width)
            ]
        inner = sum(
            norm(width, numbers.compute, is_trained=trained, kind=traits.norm, parts=parts)
            for width, parts in widths
        )
        return hidden + inner

    def products(self) -> float:
        """Return the inputs of linear layers; layers with one input share it where they can."""
        groups: dict[str, list[Linear]] = {}
        for linear in self.layer.linears:
            groups.setdefault(_input_of(linear, self.architecture), []).append(linear)
        return sum(self._inputs(name, linears) for name, linears in groups.items())

    def _inputs(self, name: str, linears: list[Linear]) -> float:
        numbers, width = self.numbers, linears[0].in_features
        adapted = [linear for linear in linears if self.rank(linear)]
        ranks = sum(self.rank(linear) * linear.active for linear in adapted) * numbers.compute
        if name.startswith("experts"):
            # The input of each chosen expert is a row of its own.
            needs_input = self._trains or adapted
            return ranks + (width * linears[0].active * numbers.compute if needs_input else 0)
        if name == "router":
            return width * FLOAT32 if self._trains else 0  # Its products are of float32.
        shared = width * (numbers.residual if name.startswith("hidden") else numbers.compute)
        if name == "attention" and self.attention != "eager":
            shared = 0  # Attention keeps its output already.
        if self._trains:
            copies = len(linears) * width * numbers.compute
            return copies if numbers.casts and name.startswith("hidden") else shared
        if not adapted:
            return 0
        if numbers.dropout:
            kept = numbers.dropout_mask + (
                numbers.compute if numbers.adapter_copies else numbers.residual
            )
            return ranks + len(adapted) * width * kept
        if numbers.adapter_copies:
            return ranks + len(adapted) * width * numbers.compute
        return ranks + shared

    @property
    def _trains(self) -> bool:
        return self.numbers.trains_base

    def attention_core(self) -> float:
        """Return queries, keys, values, the result, and what the softmax leaves."""
        architecture, size = self.architecture, self.numbers.compute
        queries, keys = architecture.query_width, architecture.key_width
        values = architecture.value_width
        repeats = self.attention == "eager" or (self.attention == "sdpa" and self.batch.is_padded)
        if repeats and architecture.shape.model_type != "deepseek_v3":
            keys = queries
        of_values = values if repeats or architecture.latents else keys
        if self.attention != "eager":
            return size * (queries + keys + of_values + values) + FLOAT32 * architecture.heads
        # Softmax in float32, and its copy in the format of the product with the values.
        probabilities = FLOAT32 + (size if size != FLOAT32 else 0)
        if architecture.traits.softcap:
            probabilities += size
        return (
            size * (queries + keys + of_values)
            + architecture.heads * self.batch.length * probabilities
        )

    def mask(self) -> float:
        """Return bytes of the additive mask that `sdpa` makes in each layer."""
        if self.attention != "sdpa" or not self.batch.is_padded:
            return 0
        return self.batch.sequences * self.batch.length**2 * self.numbers.compute

    def mlp_core(self) -> float:
        """Return what activation functions and products of two activations keep."""
        size, inner = self.numbers.compute, 0.0
        for linear in self.layer.linears:
            end = linear.name.rpartition(".")[2]
            if end == "down_proj":  # Gate, its activation, and what that is multiplied with.
                inner += 3 * linear.in_features * linear.active
            elif self.architecture.traits.norm == "layer" and linear.name == "mlp.c_proj":
                inner += 4 * linear.in_features  # GELU of elementary operations.
        dropouts = 0.0
        if self.architecture.shape.model_type == "gpt2":
            dropouts = 2 * self.architecture.hidden * self.numbers.dropout_mask
        return inner * size + dropouts + self._experts()

    def _experts(self) -> float:
        """Return what the choice of experts keeps, and the outputs that are weighted by it."""
        down = [linear for linear in self.layer.linears if linear.name == "mlp.experts.down_proj"]
        if not down:
            return 0.0
        (linear,) = down
        chosen = linear.active
        routing = (linear.copies + 2 * chosen + 1) * FLOAT32 + 4 * chosen * INDEX
        weighted = chosen
        if any(one.name == "mlp.shared_expert_gate" for one in self.layer.linears):
            weighted += 1
        return routing + weighted * linear.out_features * self.numbers.compute

    def weight_copies(self) -> float:
        """Return bytes of weights in the format of the computation, of all experts."""
        numbers = self.numbers
        if numbers.casts:
            return numbers.compute * float(
                sum(one.in_features * one.out_features * one.copies for one in self.layer.linears)
            )
        adapted = [one for one in self.layer.linears if self.rank(one)]
        # PEFT 0.21 adds the adapters of fused experts to the weights at each step.
        whole = sum(
            one.in_features * one.out_features * one.copies for one in adapted if one.copies > 1
        )
        if numbers.adapter_copies:
            whole += sum(
                self.rank(one) * (one.in_features + one.out_features) * one.copies
                for one in adapted
            )
        return numbers.compute * float(whole)

    def backward(self) -> float:
        """Return the widest moment: gradients of an MLP's activations, or of attention's."""
        numbers, hidden = self.numbers, self.architecture.hidden
        mlp = max(
            (
                one.in_features * one.active
                for one in self.layer.linears
                if one.name.rpartition(".")[2] in ("down_proj", "c_proj")
            ),
            default=0,
        )
        attention = self.architecture.query_width
        probabilities = 0.0
        if self.attention == "eager":
            size = numbers.compute
            probabilities = self.architecture.heads * self.batch.length * (FLOAT32 + size)
        widest = max(3 * mlp * numbers.compute, 4 * attention * numbers.compute + probabilities)
        return hidden * (numbers.residual + FLOAT32) + widest


def _input_of(linear: Linear, architecture: Architecture) -> str:
    """Return the activation that a linear layer reads, for layers that read the same one."""
    end = linear.name.rpartition(".")[2]
    if "experts." in linear.name and "shared" not in linear.name:
        return "experts" if end == "gate_up_proj" else f"experts {end}"
    if linear.name == "mlp.gate" and architecture.latents:
        return "router"
    if end == "o_proj" or linear.name == "attn.c_proj":
        return "attention"
    if end in ("q_b_proj", "kv_b_proj", "down_proj") or linear.name == "mlp.c_proj":
        return linear.name
    return "hidden of the MLP" if linear.name.startswith("mlp.") else "hidden"
