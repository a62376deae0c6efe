"""Counts of weights from `config.json`, against those of Transformers' own modules."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.planner.architecture import Architecture
from tests.metrics.test_flops_counter import FAMILIES, SIZES

torch = pytest.importorskip("torch")

DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", **SIZES, "num_key_value_heads": 4, "moe_intermediate_size": 24,
    "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 2,
    "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 40, "kv_lora_rank": 32,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
}  # fmt: skip
MODELS = {
    **FAMILIES,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v3-no-latent-query": {**DEEPSEEK, "q_lora_rank": None},
    "llama-biases": {**FAMILIES["llama-mha"], "attention_bias": True, "mlp_bias": True},
    "qwen2_moe-no-bias": {**FAMILIES["qwen2_moe"], "qkv_bias": False},
}


def module(config: dict[str, Any]) -> Any:
    """Return Transformers' module without memory, and without its experts' kernels."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = AutoConfig.for_model(**config)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(settings)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_transformers(name: str) -> None:
    model = module(MODELS[name])
    # As the model writes it, with the family's own defaults; and as a user may have it.
    for config in (model.config.to_dict(), MODELS[name]):
        architecture = Architecture.from_config(config)
        assert architecture is not None
        assert architecture.params == model.num_parameters()
    for index, layer in enumerate(architecture.layers):
        path = model.get_submodule(architecture.shape.layer_path)[index]
        assert architecture.layer_params(layer) == sum(p.numel() for p in path.parameters())


@pytest.mark.parametrize(
    "config",
    [{}, {"model_type": "llama"}, {"model_type": "mamba", **SIZES}, {"model_type": ["llama"]}],
)
def test_an_unknown_model_is_none(config: dict[str, Any]) -> None:
    assert Architecture.from_config(config) is None


def test_published_sizes() -> None:
    """DeepSeek-V3: 671 billion weights, 37 active (arXiv 2412.19437)."""
    config = {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "vocab_size": 129280, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "tie_word_embeddings": False,
    }  # fmt: skip
    architecture = Architecture.from_config(config)
    assert architecture is not None
    assert architecture.params / 1e9 == pytest.approx(671, abs=0.5)
    active = architecture.shape.matmul_params + architecture.embedding_params
    assert active / 1e9 == pytest.approx(37, abs=0.7)
