"""A merged model computes what base and adapter compute, also where its embeddings are tied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of a tiny model wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


IDS = torch.arange(40, 60)[None]
HEAD, EMBEDDING = "lm_head", "embed_tokens"
TARGETS = [["q_proj"], ["q_proj", HEAD], ["q_proj", EMBEDDING], ["q_proj", HEAD, EMBEDDING]]
KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "tying": {"ensure_weight_tying": True},
}
SAVED: list[dict[str, Any]] = [
    {"modules_to_save": [HEAD]},
    {"modules_to_save": [EMBEDDING]},
    {"modules_to_save": [HEAD, EMBEDDING]},
    {"modules_to_save": [HEAD, EMBEDDING], "ensure_weight_tying": True},
    {"trainable_token_indices": [41, 45]},
    {"trainable_token_indices": {EMBEDDING: [41, 45], HEAD: [42]}},
]


def base(family: str, *, tied: bool) -> Any:
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    if family == "llama":
        config: Any = LlamaConfig(
            vocab_size=261,
            hidden_size=64,
            intermediate_size=176,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=tied,
        )
    else:
        config = GPT2Config(vocab_size=261, n_embd=64, n_layer=2, n_head=4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


def adapted(model: Any, **fields: Any) -> Any:
    """Return it with an adapter whose weights were all moved, as by a training."""
    from peft import LoraConfig, get_peft_model

    made = get_peft_model(model, LoraConfig(r=4, lora_alpha=16, task_type="CAUSAL_LM", **fields))
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for weight in made.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.1)
    return made.eval()


def assert_merges(model: Any, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    from llmops_kernel.models.merging import merged

    with torch.no_grad():
        trained = model(IDS).logits
        with model.disable_adapter():
            assert (model(IDS).logits - trained).abs().max() > 0.01  # It does change something.
        merged(model).save_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder).eval()
        assert (again(IDS).logits - trained).abs().max() < 1e-4 * trained.abs().max()


@pytest.mark.filterwarnings("ignore")  # PEFT's, of tied weights: they are what is tested.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", TARGETS, ids="+".join)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_an_adapter_of_embeddings_is_merged_into_those_alone(
    tmp_path: Path, tied: bool, targets: list[str], kind: str
) -> None:
    """Merged into the weight that both layers share, logits were 92 to 433 away."""
    model = adapted(base("llama", tied=tied), target_modules=targets, **KINDS[kind])
    assert_merges(model, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fields", SAVED, ids=str)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_trained_embeddings_are_merged(tmp_path: Path, tied: bool, fields: dict[str, Any]) -> None:
    assert_merges(adapted(base("llama", tied=tied), target_modules=["q_proj"], **fields), tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_names_of_another_family_do_not_matter(tmp_path: Path) -> None:
    targets = ["c_attn", "lm_head", "wte"]
    model = adapted(base("gpt2", tied=True), target_modules=targets, fan_in_fan_out=True)
    assert_merges(model, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_embeddings_that_no_adapter_changes_stay_tied(tmp_path: Path) -> None:
    from llmops_kernel.models.merging import merged

    model = merged(adapted(base("llama", tied=True), target_modules=["q_proj"]))
    assert model.config.tie_word_embeddings is True
    assert model.lm_head.weight is model.model.embed_tokens.weight
