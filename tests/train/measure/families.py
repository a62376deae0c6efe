"""Tiny random models of many families, for counts of what they multiply."""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers

SIZES: dict[str, Any] = {
    "vocab_size": 500, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
_ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
_DEEPSEEK = {
    **_ROUTED, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "v_head_dim": 12,
    "qk_rope_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
_ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
_LATENT = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {"head_dim": 24},
    "mistral": {"sliding_window": 1024},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {**_ROUTED, "num_experts": 8},
    "deepseek_v2": {**_DEEPSEEK, "topk_method": "greedy"},
    "deepseek_v3": _DEEPSEEK,
    "falcon": {},
    "falcon (new)": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "gemma2": {"head_dim": 32, "sliding_window": 1024},
    "gemma3_text": {"head_dim": 32, "num_hidden_layers": 6, "sliding_window": 1024},
    "phi": {},
    "phi3": {},
    "gpt_neox": {},
    "opt": {"ffn_dim": 176, "word_embed_proj_dim": 32},
    "bloom": {"n_head": 4, "n_layer": 2},
    "glm": {"head_dim": 16},
    "glm4_moe": {**_ROUTED, "head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 1},
    "gpt_oss": {"head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 2},
    "cohere": {},
    "cohere2": {"sliding_window": 1024},
    "gpt2": {"n_positions": 4096, "n_head": 4, "n_layer": 2, "n_embd": 64},
}
EXPERTS = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss")


def build(name: str, *, device: str = "meta", **changes: Any) -> Any:
    """Build a model whose products FlopCounterMode can see: eager attention, experts by token."""
    options = {**SIZES, **FAMILIES[name], **changes}
    config = transformers.AutoConfig.for_model(name.partition(" ")[0], **options)
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"
    return from_config(config, device=device)


def from_config(config: Any, *, device: str = "meta") -> Any:
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config).train()


def with_lora(model: Any, targets: Any = None, **options: Any) -> Any:
    """Adapt all linear layers; of experts only what PEFT can run on `meta`."""
    kind = model.config.model_type
    if targets is None:
        targets = "all-linear" if kind not in EXPERTS else _ATTENTION
        targets = _LATENT if kind.startswith("deepseek") else targets
    settings = peft.LoraConfig(**{"r": 4, **options}, target_modules=targets, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, settings)


def executed(model: Any, length: int) -> int:
    """FLOPs of one step by PyTorch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        mask = torch.ones_like(tokens)
        model(input_ids=tokens, attention_mask=mask, labels=tokens).loss.backward()
    return counter.get_total_flops()
