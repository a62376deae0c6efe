"""Tokens of prompts, as both engines send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.score.engines.prompts import Item, PromptError, next_batch, prompt_tokens
from llmops_kernel.score.engines.protocol import Job, Request


@pytest.fixture
def tokenizer(tiny_llama: Path) -> Any:
    """One that puts a first token before each text, as Llama's does."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(str(tiny_llama))
    found.bos_token = "<|user|>"
    found.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|user|> $A", special_tokens=[("<|user|>", found.bos_token_id)]
    )
    return found


@pytest.mark.parametrize("text", ["abc", "<|user|>abc"])
def test_a_prompt_has_the_first_token_once(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(prompt_tokens(tokenizer, text)) == "<|user|>abc"


def test_what_tokenizer_or_template_refuse_is_the_prompts_error(tokenizer: Any) -> None:
    with pytest.raises(PromptError, match="tokenizer rejects the prompt"):
        prompt_tokens(tokenizer, "cut \ud83d")
    tokenizer.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(PromptError, match="template rejects the messages: System role not supp"):
        prompt_tokens(tokenizer, [{"role": "system", "content": "a"}])


@pytest.mark.parametrize("streams", [False, True])
def test_a_batch_does_not_depend_on_which_calls_arrive_beside_it(streams: bool) -> None:
    job = Job(stream=streams)
    calls = {
        call: [
            Item(Request(100 * call + n, "", call=call), job, prompt=[1] * (10 + n % 3 + call))
            for n in range(6)
        ]
        for call in (1, 2)
    }
    alone = [item.request.id for item in next_batch(calls[1], 4)]
    mixed = [item for pair in zip(*calls.values(), strict=True) for item in pair]
    beside = [item.request.id for item in next_batch(mixed, 4)]
    assert (beside == alone) == (not streams)
