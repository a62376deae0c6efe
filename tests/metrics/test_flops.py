from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.flops import (
    ModelShape,
    forward_flops,
    lora_adapters,
    mfu,
    palm_flops,
    training_flops,
)

LENGTH = 4096
CONFIGS: dict[str, dict[str, Any]] = {
    "Llama-2-7B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 32000, "tie_word_embeddings": False,
    },
    "Llama-2-13B": {
        "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824,
        "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
        "vocab_size": 32000, "tie_word_embeddings": False,
    },
    "Llama-2-70B": {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": 32000, "tie_word_embeddings": False,
    },
    "Mixtral-8x7B": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": None, "tie_word_embeddings": False,
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "vocab_size": 152064, "sliding_window": 131072, "use_sliding_window": False,
        "max_window_layers": 28, "tie_word_embeddings": False,
    },
    "SmolLM2-135M": {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "vocab_size": 49152, "tie_word_embeddings": True,
    },
}  # fmt: skip
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
# N, then GFLOP per token at 4096 tokens: PaLM, causal full, LoRA r16 with full-square
# attention, LoRA r16 causal, HFU of full training with checkpointing (the square and one more
# forward pass of the layers, without the head). Calculated apart from this code; the PaLM figure
# of Llama-2-7B also equals what TRL's `compute_flops_per_token` gives.
WORKED = {
    "Llama-2-7B": (6_607_077_376, 46.085, 42.864, 33.11, 29.89, 61.18),
    "Llama-2-13B": (12_851_609_600, 87.176, 82.143, 61.85, 56.82, 115.91),
    "Llama-2-70B": (68_713_185_280, 444.491, 428.385, 308.31, 292.20, 592.13),
    "Mixtral-8x7B": (12_748_587_008, 82.934, 79.713, 57.52, 54.30, 110.32),
    "Qwen2.5-7B": (7_070_285_824, 47.354, 44.888, 33.46, 30.99, 62.05),
    "SmolLM2-135M": (134_479_872, 1.656, 1.232, 1.417, 0.992, 2.152),
}
ADAPTERS_M = {"Llama-2-7B": 40.0, "Llama-2-13B": 62.6, "Llama-2-70B": 207.1,
              "Mixtral-8x7B": 13.6, "Qwen2.5-7B": 40.4, "SmolLM2-135M": 4.9}  # fmt: skip


def shape_of(name: str, **changes: Any) -> ModelShape:
    shape = ModelShape.from_config({**CONFIGS[name], **changes})
    assert shape is not None
    return shape


def targets_of(name: str) -> str | list[str]:
    return ATTENTION if name == "Mixtral-8x7B" else "all-linear"


@pytest.mark.parametrize("name", WORKED)
def test_worked_numbers(name: str) -> None:
    """The table, to the digits it gives; LoRA in its rounder form 4N + 6A."""
    params, palm, full, lora_square, lora, hfu = WORKED[name]
    shape = shape_of(name)
    sequence = {"tokens": LENGTH, "sum_squared_lengths": LENGTH**2}
    adapters = lora_adapters(shape, r=16, target_modules=targets_of(name))
    assert adapters is not None
    rough: dict[str, Any] = {"method": "lora", "adapter_params": adapters.params, **sequence}
    assert shape.matmul_params == params
    per_token = LENGTH * 1e9
    digits = 0.00051
    assert palm_flops(shape, **sequence) / per_token == pytest.approx(palm, abs=digits)
    assert training_flops(shape, **sequence) / per_token == pytest.approx(full, abs=digits)
    coarse = 0.0051 if lora > 2 else digits
    assert training_flops(shape, **rough) / per_token == pytest.approx(lora, abs=coarse)
    square = training_flops(shape, **rough, causal=False) / per_token
    assert square == pytest.approx(lora_square, abs=coarse)
    head = 2 * shape.lm_head.active_params / 1e9
    forward = palm_flops(shape, **sequence) / per_token / 3
    assert 4 * forward - head == pytest.approx(hfu, rel=1e-3)
    assert training_flops(shape, **rough) / per_token == pytest.approx(lora, rel=1e-3)


@pytest.mark.parametrize("name", ADAPTERS_M)
def test_worked_adapter_weights(name: str) -> None:
    adapters = lora_adapters(shape_of(name), r=16, target_modules=targets_of(name))
    assert adapters is not None
    assert adapters.params / 1e6 == pytest.approx(ADAPTERS_M[name], abs=0.051)


@pytest.mark.parametrize("name", WORKED)
def test_exact_lora_is_just_below_the_rounder_form(name: str) -> None:
    shape = shape_of(name)
    adapters = lora_adapters(shape, r=16, target_modules=targets_of(name))
    assert adapters is not None
    sizes: dict[str, Any] = {"tokens": LENGTH, "sum_squared_lengths": LENGTH**2, "method": "lora"}
    exact = training_flops(shape, adapters=adapters, **sizes)
    rough = training_flops(shape, adapter_params=adapters.params, **sizes)
    assert 0.995 < exact / rough < 1


def test_hand_calculation_of_a_first_layer() -> None:
    """One layer of sizes that one can multiply in the head: which products LoRA leaves out."""
    shape = ModelShape.from_config(
        {
            "model_type": "llama", "hidden_size": 10, "intermediate_size": 20, "vocab_size": 100,
            "num_hidden_layers": 1, "num_attention_heads": 2,
        }
    )  # fmt: skip
    assert shape is not None
    adapters = lora_adapters(shape, r=1, target_modules=["q_proj"])
    assert adapters is not None
    qkvo, mlp, head = 4 * 100, 3 * 200, 1000
    assert shape.matmul_params == qkvo + mlp + head
    assert adapters.params == 20
    # o, MLP and head need an input gradient; B two products, A only its weight gradient.
    assert adapters.backward_params == (100 + mlp + head) + 2 * 10 + 10
    assert adapters.attention_products == ((None, 2),)  # probabilities, then queries


def test_grouped_queries_save_weights_but_no_attention() -> None:
    grouped, full = shape_of("Llama-2-70B"), shape_of("Llama-2-70B", num_key_value_heads=64)
    assert full.matmul_params - grouped.matmul_params == 80 * 2 * 8192 * (8192 - 1024)
    assert grouped.attention_width == full.attention_width == 8192


def test_packing_documents_costs_less_attention_than_one_long_text() -> None:
    shape = shape_of("SmolLM2-135M")
    packed = training_flops(shape, tokens=4096, sum_squared_lengths=8 * 512**2)
    long = training_flops(shape, tokens=4096, sum_squared_lengths=4096**2)
    apart = 8 * training_flops(shape, tokens=512, sum_squared_lengths=512**2)
    assert packed == pytest.approx(apart)
    assert packed < long


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "mamba2", "hidden_size": 64},
        {"model_type": "llama", "hidden_size": 64},
        {**CONFIGS["Llama-2-7B"], "hidden_size": None},
        {**CONFIGS["Llama-2-7B"], "num_attention_heads": 0},
        {**CONFIGS["Mixtral-8x7B"], "num_experts_per_tok": 9},
        {**CONFIGS["Qwen2.5-7B"], "use_sliding_window": True,
         "layer_types": ["linear_attention"] * 28},
    ],
)  # fmt: skip
def test_an_unknown_architecture_is_none(config: dict[str, Any]) -> None:
    assert ModelShape.from_config(config) is None


@pytest.mark.parametrize(
    ("name", "target_modules"),
    [
        ("Llama-2-7B", ["query"]),
        ("Llama-2-7B", []),
        ("Llama-2-7B", "q_proj"),  # A string is a regular expression over the full name.
        ("Mixtral-8x7B", ["q_proj", "w1"]),
        ("Mixtral-8x7B", r".*q_proj"),
    ],
)
def test_adapters_that_cannot_be_placed_are_none(name: str, target_modules: Any) -> None:
    assert lora_adapters(shape_of(name), r=8, target_modules=target_modules) is None


def test_of_experts_adapters_only_the_active_ones_cost() -> None:
    adapters = lora_adapters(shape_of("Mixtral-8x7B"), r=16, target_modules=["w2"])
    assert adapters is not None
    assert adapters.params == 32 * 8 * 16 * (14336 + 4096)
    assert adapters.active_params == adapters.params // 4


@pytest.mark.parametrize(
    ("model_type", "changes", "windows"),
    [
        ("mistral", {"sliding_window": None}, [None] * 6),
        ("mistral", {"sliding_window": 32}, [32] * 6),
        ("mistral", {}, [4096] * 6),
        ("qwen2", {"sliding_window": 32}, [None] * 6),
        ("qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 4},
         [None] * 4 + [32] * 2),
        ("gemma2", {"sliding_window": 32}, [32, None] * 3),
        ("gemma3_text", {"sliding_window": 32}, [32] * 5 + [None]),
        ("qwen3", {"sliding_window": 32, "use_sliding_window": True,
                   "layer_types": ["sliding_attention", "full_attention"] * 3}, [32, None] * 3),
    ],
)  # fmt: skip
def test_sliding_windows(
    model_type: str, changes: dict[str, Any], windows: list[int | None]
) -> None:
    config = {**CONFIGS["SmolLM2-135M"], "model_type": model_type, "num_hidden_layers": 6}
    shape = ModelShape.from_config({**config, **changes})
    assert shape is not None
    assert [layer.window for layer in shape.layers] == windows


@pytest.mark.parametrize("length", [16, 32, 33, 200])
def test_a_window_counts_the_pairs_inside_it(length: int) -> None:
    window = 32
    shape = shape_of("SmolLM2-135M", model_type="mistral", sliding_window=window)
    weights = 2 * shape.matmul_params * length * 3
    flops = forward_flops(shape, tokens=3 * length, sum_squared_lengths=3 * length**2)
    # A token and half of each pair with itself, as in L^2 / 2 for the whole square.
    pairs = 3 * sum(min(position + 0.5, window) for position in range(length))
    attention = 4 * 30 * 576 * pairs
    assert flops - weights == pytest.approx(attention, rel=0.005)


sizes = st.integers(min_value=1, max_value=10_000)


@given(tokens=sizes, length=sizes, times=st.integers(1, 50))
def test_flops_are_linear_in_batches(tokens: int, length: int, times: int) -> None:
    shape = shape_of("SmolLM2-135M")
    adapters = lora_adapters(shape, r=8, target_modules="all-linear")
    for options in ({}, {"method": "lora", "adapters": adapters}):
        one = training_flops(shape, tokens=tokens, sum_squared_lengths=tokens * length, **options)
        many = training_flops(
            shape, tokens=times * tokens, sum_squared_lengths=times * tokens * length, **options
        )
        assert many == pytest.approx(times * one)


@given(length=sizes, r=st.integers(1, 256))
def test_lora_is_between_forward_and_full(length: int, r: int) -> None:
    shape = shape_of("SmolLM2-135M")
    adapters = lora_adapters(shape, r=r, target_modules=["q_proj", "v_proj"])
    assert adapters is not None
    sequence: dict[str, Any] = {"tokens": length, "sum_squared_lengths": length**2}
    forward = forward_flops(shape, adapter_params=adapters.params, **sequence)
    lora = training_flops(shape, method="lora", adapters=adapters, **sequence)
    assert forward < lora < 3 * forward
    full = training_flops(shape, **sequence)
    assert full <= palm_flops(shape, **sequence)


@given(length=sizes, workers=st.integers(1, 64), peak=st.floats(1e9, 1e16))
def test_mfu_is_one_at_the_peak(length: int, workers: int, peak: float) -> None:
    flops = training_flops(shape_of("SmolLM2-135M"), tokens=length, sum_squared_lengths=length**2)
    at_peak_s = flops / (peak * workers)
    value = mfu(flops=flops, time_s=at_peak_s, peak_flops=peak, num_workers=workers)
    assert value == pytest.approx(1)
