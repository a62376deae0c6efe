"""What a layer keeps, against the tensors that autograd saves of Transformers' own modules."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.metrics.lora import adapter_rank
from llmops_kernel.metrics.shapes import Layer, Linear
from llmops_kernel.planner.activations import Attention, Batch, Numbers, layer_memory
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.setup import Lora, Setup
from tests.metrics.test_flops_counter import FAMILIES
from tests.planner.test_architecture import DEEPSEEK

torch = pytest.importorskip("torch")

WIDER = {
    "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 500,
}  # fmt: skip
BATCH = Batch(sequences=2, length=64)
R = 8
# Dropout keeps its factors on CPUs, where this runs.
REGIMES: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": torch.bfloat16, "numbers": Numbers(compute=2, residual=2)},
    "float32": {"dtype": torch.float32, "numbers": Numbers(compute=4, residual=4)},
    "autocast": {
        "dtype": torch.float32, "autocast": True,
        "numbers": Numbers(compute=2, residual=4, casts=True),
    },
    "lora": {
        "dtype": torch.bfloat16, "autocast": True, "lora": {"r": R},
        "numbers": Numbers(compute=2, residual=2, trains_base=False, adapter_copies=True),
    },
    "lora-float32": {
        "dtype": torch.float32, "lora": {"r": R},
        "numbers": Numbers(compute=4, residual=4, trains_base=False),
    },
    "lora-dropout": {
        "dtype": torch.bfloat16, "autocast": True, "lora": {"r": R, "lora_dropout": 0.1},
        "numbers": Numbers(compute=2, residual=2, trains_base=False, adapter_copies=True,
                           dropout=True, dropout_mask=4),
    },
}  # fmt: skip
DENSE = ("llama-untied", "llama-mha", "qwen2", "qwen3", "gemma", "gemma3_text", "granite", "olmo2",
         "smollm3", "mistral")  # fmt: skip
MIXTURES = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "deepseek_v3")


def config_of(name: str, layers: int) -> dict[str, Any]:
    config = dict({**FAMILIES, "deepseek_v3": DEEPSEEK}[name])
    config |= {key: value for key, value in WIDER.items() if key in config}
    if "head_dim" in config:
        config["head_dim"] = 16
    for key in ("mlp_only_layers", "decoder_sparse_step"):
        config.pop(key, None)
    if name == "deepseek_v3":
        config |= {"first_k_dense_replace": 0, "num_key_value_heads": 8}
    if name == "llama-mha":
        config["num_key_value_heads"] = 8
    return {**config, "num_hidden_layers": layers}


def saved_bytes(
    config: dict[str, Any],
    *,
    dtype: Any,
    attention: str,
    autocast: bool = False,
    lora: dict[str, Any] | None = None,
) -> int:
    """Return bytes of the storages that a forward pass saves, weights and buffers apart."""
    from peft import LoraConfig, get_peft_model
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**config), dtype=dtype, attn_implementation=attention
        )
        model.config.use_cache = False
        if lora is not None:
            settings = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **lora)
            model = get_peft_model(model, settings)
    kept: dict[int, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = model.to_empty(device="cpu").train()
        own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}

        def keep(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage
            return tensor

        ids = torch.zeros(BATCH.sequences, BATCH.length, dtype=torch.long)
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            model(input_ids=ids, labels=ids)
    return sum(storage.nbytes() for storage in kept.values())


def planned_bytes(config: dict[str, Any], numbers: Numbers, attention: Attention) -> float:
    architecture = Architecture.from_config(config)
    assert architecture is not None
    lora = None if numbers.trains_base else Lora(r=R)
    setup = Setup(architecture=architecture, lora=lora)
    last = len(architecture.layers) - 1
    layer: Layer = architecture.layers[last]
    found = layer_memory(
        architecture,
        layer,
        BATCH,
        numbers,
        attention=attention,
        rank=lambda linear: setup.rank(linear, last),
    )
    return found.kept + found.copies


def compare(name: str, regime: str, attention: Attention) -> float:
    """Return by how much the plan of one more layer differs from what it makes autograd keep."""
    settings = dict(REGIMES[regime])
    numbers = settings.pop("numbers")
    one, two = (
        saved_bytes(config_of(name, layers), attention=attention, **settings) for layers in (1, 2)
    )
    return planned_bytes(config_of(name, 2), numbers, attention) / (two - one) - 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", DENSE)
def test_a_dense_layer_keeps_what_autograd_saves(
    name: str, regime: str, attention: Attention
) -> None:
    # Families with norms of their own keep some numbers a layer besides.
    assert compare(name, regime, attention) == pytest.approx(0, abs=3e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("regime", ["bfloat16", "lora"])
@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_of_experts_keeps_what_autograd_saves(name: str, regime: str) -> None:
    """CPUs have `grouped_mm` of bfloat16 alone, and DeepSeek's values another width than keys."""
    allowed = 0.04 if name == "deepseek_v3" else 0.01
    assert compare(name, regime, "eager") == pytest.approx(0, abs=allowed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("regime", ["bfloat16", "float32", "lora"])
def test_the_soft_cap_of_gemma_2_keeps_the_scores(regime: str) -> None:
    assert compare("gemma2", regime, "eager") == pytest.approx(0, abs=3e-3)


def test_adapters_of_fused_matrices_have_twice_the_rank() -> None:
    linear = Linear("mlp.experts.gate_up_proj", 2, 8, 16, old_names=("w1", "w3"))  # type: ignore[arg-type]
    assert adapter_rank(linear, r=R) == 2 * R
