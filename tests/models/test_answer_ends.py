"""What ends an answer is found in the tokenizer, the template and the generation settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from llmops_kernel.models.answer_ends import (
    answer_ends,
    greedy,
    save_generation_config,
    set_answer_ends,
    stop_tokens,
    turn_end,
    until_end,
)
from tests.chat_templates import STYLES, Style, follows, save_tiny, tokenizer_of, writer


@pytest.mark.parametrize("name", STYLES)
def test_the_template_says_how_an_answer_ends(name: str) -> None:
    style = STYLES[name]
    tokenizer = tokenizer_of(style)
    found = turn_end(tokenizer)
    assert found.token == (style.end and tokenizer.convert_tokens_to_ids(style.end))
    assert found.text == (style.end or "")
    assert found.is_in_next_turn == (name == "glm")
    ends = answer_ends(tokenizer, GenerationConfig(eos_token_id=[5, tokenizer.eos_token_id]))
    assert ends[0] == tokenizer.eos_token_id
    assert set(ends) == {5, tokenizer.eos_token_id, *([found.token] if found.token else [])}


def test_an_end_of_several_tokens_is_a_text() -> None:
    style = STYLES["chatml"]
    tokenizer = tokenizer_of(Style(style.template, (), "</s>", None))
    assert turn_end(tokenizer).token is None
    assert turn_end(tokenizer).text == "<|im_end|>"
    assert answer_ends(tokenizer) == (tokenizer.eos_token_id,)


def test_a_template_that_refuses_or_is_missing_ends_nothing() -> None:
    tokenizer = tokenizer_of(STYLES["chatml"])
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert turn_end(tokenizer).token is None
    tokenizer.chat_template = None
    assert answer_ends(tokenizer, GenerationConfig(eos_token_id=3)) == (tokenizer.eos_token_id, 3)
    tokenizer.chat_template = STYLES["chatml"].template  # Another template is looked at again.
    assert turn_end(tokenizer).text == "<|im_end|>"


def test_a_turn_that_begins_with_bos_does_not_end_the_one_before() -> None:
    template = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer = tokenizer_of(Style(template, ("<s>",), "</s>", None), bos="<s>")
    assert turn_end(tokenizer).token is None


def test_stop_texts_that_are_special_tokens() -> None:
    tokenizer = tokenizer_of(STYLES["chatml"])
    end, start = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    assert stop_tokens(tokenizer, ["x", "<|im_end|>\n", "a<|im_start|>", ""]) == (end,)
    assert stop_tokens(tokenizer, ["<|im_start|><|im_end|>"]) == (start,)
    assert stop_tokens(tokenizer, []) == ()
    assert until_end([1, 2, end, 3], [end, 9]) == [1, 2]


def generated(model: Any, tokenizer: Any, prompt: str) -> str:
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with greedy(model, ends=answer_ends(tokenizer, model.generation_config), pad=0):
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12)
    text: str = tokenizer.decode(made[0, ids.shape[1] :])
    return text


def test_greedy_is_greedy_and_ends_with_the_turn(tmp_path: Path) -> None:
    tokenizer = save_tiny(
        tmp_path, STYLES["gemma"], bos="<bos>", repetition_penalty=1.5, no_repeat_ngram_size=1,
        do_sample=True, temperature=9.0, top_k=3, suppress_tokens=[97], min_new_tokens=10,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path)).eval()
    follows(model, tokenizer, ["?", *"abc", "<end_of_turn>", "!"])
    before = model.generation_config
    assert generated(model, tokenizer, "abc!<end_of_turn>?") == "abc<end_of_turn>"
    assert model.generation_config is before
    assert before.repetition_penalty == 1.5


def test_greedy_below_an_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    tokenizer = tokenizer_of(STYLES["chatml"])
    model = writer(tokenizer)
    follows(model, tokenizer, ["?", *"abc", "<|im_end|>", "!"])
    model.generation_config.repetition_penalty = 1.5
    model = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
    assert generated(model, tokenizer, "abc!<|im_end|>?") == "abc<|im_end|>"
    assert model.generation_config.repetition_penalty == 1.5


def test_the_list_is_saved_with_the_model(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(STYLES["gemma"], bos="<bos>")
    model = writer(tokenizer)
    model.generation_config.eos_token_id = [7]
    set_answer_ends(model, tokenizer)
    model.save_pretrained(tmp_path / "model")
    save_generation_config(model, tmp_path / "adapter")
    ids = tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    for name in ("model", "adapter"):
        found = GenerationConfig.from_pretrained(str(tmp_path / name))
        assert found.eos_token_id == [*ids, 7]


def test_settings_that_could_not_be_saved_when_changed(tmp_path: Path) -> None:
    """As published: how to sample without that it is to be done, which a strict check refuses."""
    tokenizer = save_tiny(tmp_path / "base", STYLES["gemma"], bos="<bos>")
    file = tmp_path / "base" / "generation_config.json"
    file.write_text('{"temperature": 0.6, "top_p": 0.9, "do_sample": false, "eos_token_id": 257}')
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "base"))
    set_answer_ends(model, tokenizer)
    model.save_pretrained(tmp_path / "model")
    found = GenerationConfig.from_pretrained(str(tmp_path / "model"))
    assert found.eos_token_id == tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    assert found.do_sample is True
    assert found.temperature == 0.6
