"""The matrix products of a language model, read from its Transformers `config.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, Self


class Stage(IntEnum):
    """Order of the linear layers inside a decoder layer; attention comes after QKV."""

    QKV = 0
    ATTENTION_OUT = 1
    MLP_IN = 2
    MLP_OUT = 3
    HEAD = 4


@dataclass(frozen=True)
class Linear:
    """A weight matrix, or the equal ones of all experts."""

    name: str
    """Below its decoder layer: `self_attn.q_proj`."""
    stage: Stage
    in_features: int
    out_features: int
    active: int = 1
    """Equal matrices that one token goes through: k of E experts."""
    copies: int = 1
    """Number of equal matrices: E."""
    adaptable: bool = True
    """PEFT can give it an adapter."""
    old_names: tuple[str, ...] = ()
    """Transformers 5 keeps experts and routers as bare parameters; PEFT targets them by
    the layers that they were before, two of which may be fused into one now.
    """

    @property
    def active_params(self) -> int:
        return self.in_features * self.out_features * self.active


@dataclass(frozen=True)
class Layer:
    linears: tuple[Linear, ...]
    window: int | None = None
    """Sliding attention window in tokens; None looks at the whole sequence."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only language model that its FLOPs depend on."""

    model_type: str
    layers: tuple[Layer, ...]
    attention_width: int
    """Query heads times head size; not the hidden size (Qwen3, Gemma, Mistral-Nemo)."""
    lm_head: Linear
    layer_path: str = "model.layers"

    @cached_property
    def matmul_params(self) -> int:
        """Return N: weights that multiply one token. With the head, also when it is tied to the
        embedding; without the embedding look-up, norms and biases; k of E experts.
        """
        linears = (linear for layer in self.layers for linear in layer.linears)
        return sum(linear.active_params for linear in linears) + self.lm_head.active_params

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, is_exact: bool = True) -> Self | None:
        """Read a `config.json`; None where the architecture is not known or a size is missing.

        `is_exact`: only families whose FLOPs, of adapters too, were compared with PyTorch's
        counter; others are for plans.
        """
        name = str(config.get("model_type"))
        family = _FAMILIES.get(name) or (None if is_exact else _PLANNED.get(name))
        try:
            return None if family is None else cls(**family(config))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None


_OLD_QWEN: Final = ("gate", "gate_proj", "up_proj", "down_proj")

_Fields = dict[str, Any]
_Config = Mapping[str, Any]
_Family = Callable[[_Config], _Fields]
_LayerMlp = Callable[[_Config, int], tuple[Linear, ...]]


def _decoder(
    *,
    mlp: _LayerMlp,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    window: Callable[[_Config, int], int | None] = lambda config, index: None,
    fused: bool = False,
) -> _Family:
    """Describe Llama and its many relatives; the arguments are the family's own defaults."""

    def fields(config: _Config) -> _Fields:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        size = int(config.get("head_dim") or head_dim or hidden // heads)
        kv = int(config.get("num_key_value_heads") or kv_heads or heads)
        attention = _attention(hidden, queries=heads * size, keys=kv * size, fused=fused)
        layers = tuple(
            Layer((*attention, *mlp(config, index)), window=window(config, index))
            for index in range(int(config["num_hidden_layers"]))
        )
        return {
            "model_type": config["model_type"],
            "layers": layers,
            "attention_width": heads * size,
            "lm_head": Linear("lm_head", Stage.HEAD, hidden, int(config["vocab_size"])),
        }

    return fields


def _attention(hidden: int, *, queries: int, keys: int, fused: bool) -> tuple[Linear, ...]:
    out = Linear("self_attn.o_proj", Stage.ATTENTION_OUT, queries, hidden)
    if fused:
        return (Linear("self_attn.qkv_proj", Stage.QKV, hidden, queries + 2 * keys), out)
    return (
        Linear("self_attn.q_proj", Stage.QKV, hidden, queries),
        Linear("self_attn.k_proj", Stage.QKV, hidden, keys),
        Linear("self_attn.v_proj", Stage.QKV, hidden, keys),
        out,
    )


def _gated_mlp(hidden: int, inner: int, *, prefix: str = "mlp") -> tuple[Linear, ...]:
    return (
        Linear(f"{prefix}.gate_proj", Stage.MLP_IN, hidden, inner),
        Linear(f"{prefix}.up_proj", Stage.MLP_IN, hidden, inner),
        Linear(f"{prefix}.down_proj", Stage.MLP_OUT, inner, hidden),
    )


def _dense(config: _Config, index: int) -> tuple[Linear, ...]:
    return _gated_mlp(int(config["hidden_size"]), int(config["intermediate_size"]))


def _dense_fused(config: _Config, index: int) -> tuple[Linear, ...]:
    hidden, inner = int(config["hidden_size"]), int(config["intermediate_size"])
    return (
        Linear("mlp.gate_up_proj", Stage.MLP_IN, hidden, 2 * inner),
        Linear("mlp.down_proj", Stage.MLP_OUT, inner, hidden),
    )


def _experts(config: _Config, inner: int, old_names: tuple[str, ...]) -> tuple[Linear, ...]:
    """Describe experts. `old_names`: of router, gate, up, down; empty if PEFT knows none."""
    hidden, active = int(config["hidden_size"]), int(config["num_experts_per_tok"])
    # Transformers 5 writes `num_local_experts`, older files of some families `num_experts`.
    copies = int(config.get("num_local_experts") or config["num_experts"])
    if active > copies:
        raise ValueError("more experts per token than there are")
    router, gate_up, down = old_names[:1], old_names[1:3], old_names[3:]
    return (
        Linear(
            "mlp.gate",
            Stage.MLP_IN,
            hidden,
            copies,
            adaptable=bool(router),
            old_names=router,
        ),
        Linear(
            "mlp.experts.gate_up_proj",
            Stage.MLP_IN,
            hidden,
            2 * inner,
            active=active,
            copies=copies,
            adaptable=bool(gate_up),
            old_names=gate_up,
        ),
        Linear(
            "mlp.experts.down_proj",
            Stage.MLP_OUT,
            inner,
            hidden,
            active=active,
            copies=copies,
            adaptable=bool(down),
            old_names=down,
        ),
    )


def _mixtral(config: _Config, index: int) -> tuple[Linear, ...]:
    return _experts(config, int(config["intermediate_size"]), ("gate", "w1", "w3", "w2"))


def _olmoe(config: _Config, index: int) -> tuple[Linear, ...]:
    return _experts(config, int(config["intermediate_size"]), _OLD_QWEN)


def _qwen3_moe(config: _Config, index: int) -> tuple[Linear, ...]:
    if _is_dense(config, index):
        return _dense(config, index)
    return _experts(config, int(config["moe_intermediate_size"]), _OLD_QWEN)


def _qwen2_moe(config: _Config, index: int) -> tuple[Linear, ...]:
    if _is_dense(config, index):
        return _dense(config, index)
    hidden, shared = int(config["hidden_size"]), int(config["shared_expert_intermediate_size"])
    return (
        *_experts(config, int(config["moe_intermediate_size"]), ()),
        *_gated_mlp(hidden, shared, prefix="mlp.shared_expert"),
        Linear("mlp.shared_expert_gate", Stage.MLP_IN, hidden, 1),
    )


def _is_dense(config: _Config, index: int) -> bool:
    step = int(config.get("decoder_sparse_step") or 1)
    return index in (config.get("mlp_only_layers") or ()) or (index + 1) % step != 0


def _listed_window(config: _Config, index: int) -> int | None:
    """Return the layer's window: `layer_types` lists the layers that slide; without it all do."""
    window = config.get("sliding_window") or None
    types = config.get("layer_types")
    if types is None:
        return window
    if types[index] not in ("full_attention", "sliding_attention"):
        raise ValueError(f"{types[index]} has other FLOPs than softmax attention")
    return window if types[index] == "sliding_attention" else None


def _mistral_window(config: _Config, index: int) -> int | None:
    # A file without the key means the class default, an explicit null no window at all.
    return _listed_window({"sliding_window": 4096, **config}, index)


def _qwen_window(config: _Config, index: int) -> int | None:
    if not config.get("use_sliding_window"):
        return None
    if config.get("layer_types") is None and index < int(config.get("max_window_layers", 28)):
        return None
    return _listed_window(config, index)


def _gemma_window(every: int) -> Callable[[_Config, int], int | None]:
    """Return a layer's window: Gemma 2 alternates; Gemma 3 has one full layer in six."""

    def window(config: _Config, index: int) -> int | None:
        if config.get("layer_types") is None:
            keys = ("sliding_window_pattern", "_sliding_window_pattern")
            pattern = next((config[key] for key in keys if config.get(key)), every)
            if (index + 1) % int(pattern) == 0:
                return None
        return _mistral_window(config, index)

    return window


def _gpt2(config: _Config) -> _Fields:
    hidden = int(config["n_embd"])
    inner = int(config.get("n_inner") or 4 * hidden)
    layer = Layer(
        (
            Linear("attn.c_attn", Stage.QKV, hidden, 3 * hidden),
            Linear("attn.c_proj", Stage.ATTENTION_OUT, hidden, hidden),
            Linear("mlp.c_fc", Stage.MLP_IN, hidden, inner),
            Linear("mlp.c_proj", Stage.MLP_OUT, inner, hidden),
        )
    )
    return {
        "model_type": "gpt2",
        "layers": (layer,) * int(config["n_layer"]),
        "attention_width": hidden,
        "lm_head": Linear("lm_head", Stage.HEAD, hidden, int(config["vocab_size"])),
        "layer_path": "transformer.h",
    }


def _deepseek(config: _Config) -> _Fields:
    """Describe multi-head latent attention: queries, keys and values from small latent vectors."""
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    rope, nope = int(config["qk_rope_head_dim"]), int(config["qk_nope_head_dim"])
    value, latent = int(config["v_head_dim"]), int(config["kv_lora_rank"])
    queries, rank = heads * (rope + nope), config.get("q_lora_rank")
    query_layers = (
        (Linear("self_attn.q_proj", Stage.QKV, hidden, queries),)
        if rank is None
        else (
            Linear("self_attn.q_a_proj", Stage.QKV, hidden, int(rank)),
            Linear("self_attn.q_b_proj", Stage.QKV, int(rank), queries),
        )
    )
    attention = (
        *query_layers,
        Linear("self_attn.kv_a_proj_with_mqa", Stage.QKV, hidden, latent + rope),
        Linear("self_attn.kv_b_proj", Stage.QKV, latent, heads * (nope + value)),
        Linear("self_attn.o_proj", Stage.ATTENTION_OUT, heads * value, hidden),
    )
    layers = tuple(
        Layer((*attention, *_deepseek_mlp(config, index)))
        for index in range(int(config["num_hidden_layers"]))
    )
    return {
        "model_type": config["model_type"],
        "layers": layers,
        # A product of queries and keys and one of probabilities and values: on average this wide.
        "attention_width": (queries + heads * value) // 2,
        "lm_head": Linear("lm_head", Stage.HEAD, hidden, int(config["vocab_size"])),
    }


def _deepseek_mlp(config: _Config, index: int) -> tuple[Linear, ...]:
    if index < int(config.get("first_k_dense_replace", 3)):
        return _dense(config, index)
    hidden, inner = int(config["hidden_size"]), int(config["moe_intermediate_size"])
    experts = {**config, "num_local_experts": config["n_routed_experts"]}
    shared = inner * int(config["n_shared_experts"])
    return (
        *_experts(experts, inner, _OLD_QWEN),
        *_gated_mlp(hidden, shared, prefix="mlp.shared_experts"),
    )


# Only families whose weights were counted against Transformers' own modules (see the tests).
_FAMILIES: Final[dict[str, _Family]] = {
    "llama": _decoder(mlp=_dense),
    "granite": _decoder(mlp=_dense),
    "olmo2": _decoder(mlp=_dense),
    "smollm3": _decoder(mlp=_dense, kv_heads=4, window=_qwen_window),
    "mistral": _decoder(mlp=_dense, kv_heads=8, window=_mistral_window),
    "qwen2": _decoder(mlp=_dense, kv_heads=32, window=_qwen_window),
    "qwen3": _decoder(mlp=_dense, kv_heads=32, head_dim=128, window=_qwen_window),
    "gemma": _decoder(mlp=_dense, kv_heads=16, head_dim=256),
    "gemma2": _decoder(mlp=_dense, kv_heads=4, head_dim=256, window=_gemma_window(2)),
    "gemma3_text": _decoder(mlp=_dense, kv_heads=4, head_dim=256, window=_gemma_window(6)),
    "phi3": _decoder(mlp=_dense_fused, window=_listed_window, fused=True),
    "gpt2": _gpt2,
    "mixtral": _decoder(mlp=_mixtral, kv_heads=8, window=_listed_window),
    "olmoe": _decoder(mlp=_olmoe),
    "qwen2_moe": _decoder(mlp=_qwen2_moe, kv_heads=16, window=_qwen_window),
    "qwen3_moe": _decoder(mlp=_qwen3_moe, kv_heads=4, window=_qwen_window),
}
_PLANNED: Final[dict[str, _Family]] = {"deepseek_v3": _deepseek}
