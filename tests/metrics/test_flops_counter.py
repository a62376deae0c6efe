"""Our FLOPs against what PyTorch executes, counted by `FlopCounterMode` on tiny models.

Attention is eager, since the counter knows no CPU kernel of `sdpa` and would see none of
it; eager also computes the full square, hence `causal=False`. Experts are eager for the
same reason: `grouped_mm`, the default of Transformers 5, is not registered with the counter.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from llmops_kernel.metrics.flops import ModelShape, lora_adapters, training_flops

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

BATCH, LENGTH = 2, 96
SIZES: dict[str, Any] = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
GPT2 = {"vocab_size": 500, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}
MOE = {"num_local_experts": 8, "num_experts_per_tok": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama-untied": {"model_type": "llama", **SIZES, "tie_word_embeddings": False},
    "llama-tied": {"model_type": "llama", **SIZES, "tie_word_embeddings": True},
    "llama-mha": {"model_type": "llama", **SIZES, "num_key_value_heads": 4},
    "llama-head-dim": {"model_type": "llama", **SIZES, "head_dim": 32},
    "qwen2": {"model_type": "qwen2", **SIZES},
    "qwen3": {"model_type": "qwen3", **SIZES, "head_dim": 24},
    "gemma2": {"model_type": "gemma2", **SIZES, "head_dim": 32, "sliding_window": 32},
    "phi3": {"model_type": "phi3", **SIZES, "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", **GPT2},
    "mixtral": {"model_type": "mixtral", **SIZES, **MOE},
    "qwen2_moe": {
        "model_type": "qwen2_moe", **SIZES, "num_hidden_layers": 4, "decoder_sparse_step": 2,
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 80,
    },
}  # fmt: skip
# More than in MODELS, for the count of weights alone.
FAMILIES: dict[str, dict[str, Any]] = {
    **MODELS,
    "granite": {"model_type": "granite", **SIZES},
    "olmo2": {"model_type": "olmo2", **SIZES},
    "smollm3": {"model_type": "smollm3", **SIZES, "pad_token_id": 0},
    "mistral": {"model_type": "mistral", **SIZES, "head_dim": 24},
    "gemma": {"model_type": "gemma", **SIZES, "head_dim": 32},
    "gemma3_text": {"model_type": "gemma3_text", **SIZES, "num_hidden_layers": 6},
    "olmoe": {"model_type": "olmoe", **SIZES, "num_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {
        "model_type": "qwen3_moe", **SIZES, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 48, "mlp_only_layers": [1],
    },
}  # fmt: skip
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LORA_CASES = [
    *((name, "all-linear") for name in MODELS if name != "mixtral"),
    *((name, ATTENTION) for name in ("llama-untied", "mixtral", "qwen2_moe")),
    ("llama-untied", ["q_proj", "v_proj"]),
    ("llama-untied", ["q_proj"]),
    ("llama-untied", ["v_proj"]),
    ("llama-untied", ["o_proj"]),
    ("llama-untied", ["down_proj"]),
    ("llama-untied", ["gate_proj", "up_proj"]),
    ("llama-untied", ["q_proj", "lm_head"]),
    ("llama-untied", r".*\.1\..*_proj"),
    ("gpt2", ["c_attn"]),
    ("gpt2", ["c_proj"]),
]


def build(config: dict[str, Any], *, device: str = "cpu") -> Any:
    options = dict(config)
    configuration = transformers.AutoConfig.for_model(options.pop("model_type"), **options)
    configuration._attn_implementation = "eager"
    configuration._experts_implementation = "eager"
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(configuration).train()


def executed_flops(model: Any, vocab_size: int) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.randint(1, vocab_size, (BATCH, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, labels=tokens).loss.backward()
    return counter.get_total_flops()


def shape_of(model: Any) -> ModelShape:
    shape = ModelShape.from_config(model.config.to_dict())
    assert shape is not None
    return shape


def required(shape: ModelShape, **options: Any) -> float:
    return training_flops(
        shape,
        tokens=BATCH * LENGTH,
        sum_squared_lengths=BATCH * LENGTH**2,
        causal=False,
        **options,
    )


@pytest.mark.parametrize("name", MODELS)
def test_full_training_equals_the_counter(name: str) -> None:
    model = build(MODELS[name])
    ratio = required(shape_of(model)) / executed_flops(model, 500)
    print(f"{name} full: ratio {ratio:.6f}")
    assert ratio == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(("name", "target_modules"), LORA_CASES)
def test_lora_equals_the_counter(name: str, target_modules: list[str] | str) -> None:
    model = build(MODELS[name])
    shape = shape_of(model)
    config = peft.LoraConfig(r=4, target_modules=target_modules, task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, config)
    adapters = lora_adapters(shape, r=4, target_modules=target_modules)
    assert adapters is not None
    assert adapters.params == wrapped.get_nb_trainable_parameters()[0]
    executed = executed_flops(wrapped, 500)
    ratio = required(shape, method="lora", adapters=adapters) / executed
    rough = required(shape, method="lora", adapter_params=adapters.params) / executed
    print(f"{name} LoRA {target_modules}: ratio {ratio:.6f} (4N+6A: {rough:.4f})")
    assert ratio == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_weights_are_those_of_the_modules(name: str) -> None:
    """N from the config is what Transformers builds, experts by k of E."""
    model = build(FAMILIES[name], device="meta")
    shape = shape_of(model)
    matrices = {
        path: parameter.numel()
        for path, parameter in model.named_parameters()
        if parameter.ndim > 1 and not any(e in path for e in ("embed_tokens", "wte", "wpe"))
    }
    share = FAMILIES[name].get("num_experts_per_tok", 0) / 8
    active = sum(
        count * share if ".experts." in path else count for path, count in matrices.items()
    )
    # A tied head is one parameter with the embedding, and listed as that.
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        active += shape.lm_head.active_params
    assert shape.matmul_params == active


@pytest.mark.parametrize("name", FAMILIES)
def test_all_linear_adapters_are_those_of_peft(name: str) -> None:
    model = build(FAMILIES[name], device="meta")
    shape = shape_of(model)
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, config)
    adapters = lora_adapters(shape, r=4, target_modules="all-linear")
    assert adapters is not None
    assert adapters.params == wrapped.get_nb_trainable_parameters()[0]


@pytest.mark.parametrize(
    ("name", "target_modules"),
    [
        ("mixtral", ["q_proj", "w1", "w3"]),
        ("mixtral", ["w2"]),
        ("mixtral", ["gate"]),
        ("qwen3_moe", ["gate_proj", "up_proj", "o_proj"]),
        ("qwen3_moe", ["down_proj", "v_proj"]),
        ("qwen2_moe", ["down_proj", "v_proj"]),
    ],
)
def test_named_expert_adapters_are_those_of_peft(name: str, target_modules: list[str]) -> None:
    model = build(FAMILIES[name], device="meta")
    adapters = lora_adapters(shape_of(model), r=4, target_modules=target_modules)
    config = peft.LoraConfig(r=4, target_modules=target_modules, task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, config)
    assert adapters is not None
    assert adapters.params == wrapped.get_nb_trainable_parameters()[0]


def test_half_a_fused_pair_is_refused_as_by_peft() -> None:
    model = build(MODELS["mixtral"], device="meta")
    assert lora_adapters(shape_of(model), r=4, target_modules=["q_proj", "w1"]) is None
    with pytest.raises(ValueError, match="fused"):
        peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "w1"]))


def test_expert_adapters_execute_more_than_they_require() -> None:
    """PEFT folds them into the full weight and then makes the full weight's gradient.

    Work of the implementation, not of the model: required is what k experts' adapters need.
    """
    model = build(MODELS["mixtral"])
    shape = shape_of(model)
    adapters = lora_adapters(shape, r=4, target_modules="all-linear")
    assert adapters is not None
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    executed = executed_flops(peft.get_peft_model(model, config), 500)
    needed = required(shape, method="lora", adapters=adapters)
    print(f"mixtral LoRA all-linear: required / executed {needed / executed:.4f}")
    attention_only = lora_adapters(shape, r=4, target_modules=ATTENTION)
    assert required(shape, method="lora", adapters=attention_only) < needed < executed


def test_gradient_checkpointing_is_not_counted() -> None:
    """It executes about a third more, but requires nothing more."""
    model = build(MODELS["llama-untied"])
    plain = required(shape_of(model))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert 1.15 < executed_flops(model, 500) / plain < 1.34
