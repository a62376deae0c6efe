"""The sizes of a language model that its memory depends on, read from its `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Self

from llmops_kernel.metrics.shapes import Layer, ModelShape


@dataclass(frozen=True)
class Traits:
    """What a family has besides its matrix products. Counted from Transformers 5.23."""

    norms: int = 2
    """Norms of the hidden size in a layer."""
    head_norms: Literal["", "head", "whole"] = ""
    """Norms of queries and keys: over each head, or over all heads together."""
    norm: Literal["rms", "rms32", "layer"] = "rms"
    """RMSNorm; one that multiplies by its weight in float32; LayerNorm."""
    biases: tuple[str, ...] = ()
    """Linear layers that always have a bias, by the ends of their names."""
    is_tied: bool = False
    """The head is the embedding where `config.json` does not say."""
    softcap: bool = False
    """Scores of attention go through a tanh, which only eager attention does."""
    latents: tuple[str, ...] = ()
    """Keys with the widths of the latent vectors that have a norm of their own (DeepSeek)."""


_QKV = ("q_proj", "k_proj", "v_proj")

# As in `metrics.shapes`: only families whose weights were counted against Transformers' modules.
_TRAITS: Final[dict[str, Traits]] = {
    "llama": Traits(),
    "granite": Traits(),
    "olmo2": Traits(head_norms="whole", norm="rms32"),
    "smollm3": Traits(is_tied=True),
    "mistral": Traits(),
    "qwen2": Traits(biases=_QKV),
    "qwen3": Traits(head_norms="head"),
    "gemma": Traits(norm="rms32", is_tied=True),
    "gemma2": Traits(norms=4, norm="rms32", is_tied=True, softcap=True),
    "gemma3_text": Traits(norms=4, norm="rms32", head_norms="head", is_tied=True),
    "phi3": Traits(),
    "gpt2": Traits(norm="layer", biases=("c_attn", "c_proj", "c_fc"), is_tied=True),
    "mixtral": Traits(),
    "olmoe": Traits(head_norms="whole"),
    "qwen2_moe": Traits(biases=_QKV),
    "qwen3_moe": Traits(head_norms="head"),
    "deepseek_v3": Traits(latents=("q_lora_rank", "kv_lora_rank")),
}


@dataclass(frozen=True)
class Architecture:
    """A decoder-only model. Counts are of numbers, not bytes."""

    shape: ModelShape
    traits: Traits
    hidden: int
    vocabulary: int
    heads: int
    query_width: int
    """Query heads times the size of a query."""
    key_width: int
    """Key heads times the size of a key; those of a latent attention after it was expanded."""
    value_width: int
    """Query heads times the size of a value."""
    is_tied: bool
    positions: int = 0
    """Learned positions (GPT-2)."""
    latents: tuple[int, ...] = ()
    biased: frozenset[str] = frozenset()
    """Names of the linear layers with a bias."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self | None:
        """Read a `config.json`; None where the architecture is not known or a size is missing."""
        config = config.get("text_config") or config
        traits = _TRAITS.get(str(config.get("model_type")))
        shape = ModelShape.from_config(config, is_exact=False)
        if traits is None or shape is None:
            return None
        hidden = shape.lm_head.in_features
        heads = int(config.get("num_attention_heads") or config["n_head"])
        queries, keys, values = _widths(config, shape, heads)
        return cls(
            shape=shape,
            traits=traits,
            hidden=hidden,
            vocabulary=shape.lm_head.out_features,
            heads=heads,
            query_width=queries,
            key_width=keys,
            value_width=values,
            is_tied=bool(config.get("tie_word_embeddings", traits.is_tied)),
            positions=int(config.get("n_positions") or 0) if shape.model_type == "gpt2" else 0,
            latents=tuple(int(config[key]) for key in traits.latents if config.get(key)),
            biased=_biased(config, traits, shape),
        )

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.shape.layers

    def layer_params(self, layer: Layer) -> int:
        """Return the weights of a decoder layer, of all experts."""
        linears = sum(
            (linear.in_features * linear.out_features) * linear.copies
            + (linear.out_features if linear.name in self.biased else 0)
            for linear in layer.linears
        )
        return linears + self.norm_params

    @cached_property
    def norm_params(self) -> int:
        """Return the weights of a layer's norms."""
        each = 2 if self.traits.norm == "layer" else 1
        heads = {"": 0, "head": 2 * (self.query_width // self.heads)}.get(
            self.traits.head_norms, self.query_width + self.key_width
        )
        # DeepSeek-V3 corrects the choice of experts by a buffer, which is no weight.
        return each * self.traits.norms * self.hidden + heads + sum(self.latents)

    @property
    def embedding_params(self) -> int:
        return (self.vocabulary + self.positions) * self.hidden

    @property
    def head_params(self) -> int:
        """Return the weights of the head; 0 where it is the embedding."""
        return 0 if self.is_tied else self.vocabulary * self.hidden

    @cached_property
    def params(self) -> int:
        """Return all weights, as Transformers counts them."""
        final = self.hidden * (2 if self.traits.norm == "layer" else 1)
        layers = sum(self.layer_params(layer) for layer in self.layers)
        return layers + self.embedding_params + self.head_params + final

    @cached_property
    def linear_params(self) -> int:
        """Return the weights that bitsandbytes quantises: linear layers but for the head."""
        return sum(
            linear.in_features * linear.out_features
            for layer in self.layers
            for linear in layer.linears
            if linear.copies == 1
        )


def _widths(config: Mapping[str, Any], shape: ModelShape, heads: int) -> tuple[int, int, int]:
    if shape.model_type == "deepseek_v3":
        rope, nope = int(config["qk_rope_head_dim"]), int(config["qk_nope_head_dim"])
        return heads * (rope + nope), heads * (rope + nope), heads * int(config["v_head_dim"])
    width = shape.attention_width
    outputs = {linear.name: linear.out_features for linear in shape.layers[0].linears}
    keys = outputs.get("self_attn.k_proj")
    if keys is None:  # One matrix makes all three.
        fused = outputs.get("self_attn.qkv_proj") or outputs["attn.c_attn"]
        keys = (fused - width) // 2
    return width, keys, width


def _biased(config: Mapping[str, Any], traits: Traits, shape: ModelShape) -> frozenset[str]:
    of_attention, of_mlp = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    linears = {linear.name for layer in shape.layers for linear in layer.linears}
    ends = traits.biases
    if shape.model_type == "qwen2_moe" and not config.get("qkv_bias", True):
        ends = ()
    return frozenset(
        name
        for name in linears
        if name.rpartition(".")[2] in ends
        or (of_attention and name.startswith("self_attn."))
        or (of_mlp and name.startswith("mlp.") and "experts" not in name)
    )
