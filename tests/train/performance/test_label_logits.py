"""Logits at labels only: the same loss and gradients as logits of all tokens, in each family."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from llmops_kernel.train.data.collate import COUNTS, Collator
from llmops_kernel.train.data.examples import IGNORED, Example
from llmops_kernel.train.evaluation import summed_loss
from llmops_kernel.train.performance import label_logits_hindrance, labelled_share

SIZE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"tie_word_embeddings": True},
    "Qwen2": {},
    "Qwen3": {},
    "Mistral": {},
    "Mixtral": {"num_local_experts": 4, "output_router_logits": True},
    "Gemma2": {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 10.0},
    "Cohere": {"logit_scale": 0.3},
    "Granite": {"logits_scaling": 4.0},
    "Phi3": {},
    "GPTNeoX": {},
    "OPT": {"word_embed_proj_dim": 32, "ffn_dim": 48},
    "Bloom": {},
    "Falcon": {},
    "Glm": {},
}


def tiny(family: str) -> Any:
    torch.manual_seed(1)
    size = {name: value for name, value in SIZE.items() if family != "Falcon" or name != "head_dim"}
    config = getattr(transformers, f"{family}Config")(**{**size, **FAMILIES[family]})
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.config.use_cache = False
    return model.eval()  # without dropout, whose random numbers are drawn for all positions


def examples(seed: int = 3) -> list[Example]:
    """Rows of a question without labels and an answer with some; one has a hole in its labels."""
    rng, rows = random.Random(seed), []
    for _ in range(5):
        ids = [rng.randrange(1, 97) for _ in range(rng.randrange(6, 30))]
        begin = rng.randrange(0, len(ids) - 2)
        rows.append(Example(ids, [IGNORED] * begin + ids[begin:]))
    rows[2].labels[-2] = IGNORED
    return rows


def loss_and_gradients(
    model: Any, rows: list[Example], **settings: bool
) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    batch = Collator(pad_token_id=0, pad_to_multiple_of=1, **settings)(rows)
    batch.pop(COUNTS)
    items = batch["labels"][..., 1:].ne(IGNORED).sum()  # as Transformers' Trainer counts
    loss = model(**batch, num_items_in_batch=items).loss
    loss.backward()
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return loss.item(), {name: gradient.clone() for name, gradient in found.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_those_of_all_logits(family: str) -> None:
    model = tiny(family)
    assert label_logits_hindrance(model) == ""
    expected, gradients = loss_and_gradients(model, examples())
    found, others = loss_and_gradients(model, examples(), label_logits=True)
    assert found == pytest.approx(expected, rel=1e-6)
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-4, atol=1e-6)


def test_an_adapter_learns_the_same() -> None:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(tiny("Llama"), lora)
    assert label_logits_hindrance(model) == ""
    expected, gradients = loss_and_gradients(model, examples())
    found, others = loss_and_gradients(model, examples(), label_logits=True)
    assert found == pytest.approx(expected, rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("label_logits", [False, True])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Mistral", "Gemma2"])
def test_rows_without_padding_between_them_give_the_same_loss(
    family: str, label_logits: bool
) -> None:
    model = tiny(family)
    expected, gradients = loss_and_gradients(model, examples())
    found, others = loss_and_gradients(
        model, examples(), label_logits=label_logits, padding_free=True
    )
    assert found == pytest.approx(expected, rel=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-3, atol=1e-5)


def test_the_last_token_of_the_last_row_may_have_no_label() -> None:
    model, rows = tiny("Llama"), examples()
    rows[-1].labels[-1] = IGNORED
    expected, _ = loss_and_gradients(model, rows)
    found, _ = loss_and_gradients(model, rows, label_logits=True)
    assert found == pytest.approx(expected, rel=1e-6)


def test_an_evaluation_sums_the_same_loss() -> None:
    model, sums = tiny("Gemma2"), []
    for label_logits in (False, True):
        batch = Collator(pad_token_id=0, label_logits=label_logits)(examples())
        batch.pop(COUNTS)
        with torch.no_grad():
            loss, count = summed_loss(model, batch, labels=batch.pop("labels"))
        sums.append((loss.item(), count))
    assert sums[1] == (pytest.approx(sums[0][0], rel=1e-6), sums[0][1])


def test_logits_are_counted_where_they_are_computed() -> None:
    rows = [Example([1, 2, 3, 4], [IGNORED, IGNORED, 3, 4]), Example([5, 6], [5, 6])]
    assert Collator(pad_token_id=0)(rows)[COUNTS].tolist() == [[4, 16, 4], [2, 4, 2]]
    counts = Collator(pad_token_id=0, label_logits=True)(rows)[COUNTS]
    assert counts.tolist() == [[4, 16, 2], [2, 4, 1]]
    assert labelled_share(rows) == pytest.approx(4 / 6)


def test_a_model_that_nobody_has_looked_at_computes_all_logits() -> None:
    class Changed(transformers.LlamaForCausalLM):
        """Could do anything between the hidden states and the loss."""

    config = transformers.LlamaConfig(**SIZE)
    assert "not a model of Transformers" in label_logits_hindrance(Changed(config))
    own_loss: Callable[..., Any] = lambda logits, labels, **_: logits.sum()  # noqa: E731
    model = tiny("Llama")
    model.loss_function = own_loss
    assert "a loss of its own" in label_logits_hindrance(model)
    assert "a loss of its own" in label_logits_hindrance(
        transformers.XLMWithLMHeadModel(
            transformers.XLMConfig(vocab_size=97, emb_dim=8, n_layers=1, n_heads=1)
        )
    )
