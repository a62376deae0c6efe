"""A scoring's answers end with the turn, and at stop texts that are special tokens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmops_kernel.score.engines.prompts import prepare
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, Job, Prompt, Request
from llmops_kernel.score.engines.transformers.engine import TransformersEngine
from llmops_kernel.score.engines.vllm.engine import TASKS
from tests.chat_templates import STYLES, Style, follows, save_tiny, tokenizer_of

CHAT: Prompt = [{"role": "user", "content": "abc?"}]


def answered(folder: Path, written: list[str], job: Job, prompt: Prompt, tokenizer: Any) -> Answer:
    spec = EngineSpec(type="transformers", model=str(folder), dtype="float32", max_model_len=200)
    engine = TransformersEngine(spec)
    follows(engine.loaded.model, tokenizer, written)
    engine.add(Request(id=0, prompt=prompt), job)
    found: list[Answer] = []
    while engine.unfinished:
        found += engine.step()
    engine.close()
    (answer,) = found
    return answer


@pytest.mark.parametrize(
    ("name", "end"),
    [("gemma", "<end_of_turn>"), ("phi3", "<|end|>"), ("glm", "<|user|>")],
)
def test_the_end_of_the_turn_ends_an_answer(tmp_path: Path, name: str, end: str) -> None:
    tokenizer = save_tiny(tmp_path, STYLES[name])
    answer = answered(tmp_path, ["Ċ", *"abc", end, "!"], Job(max_tokens=20), CHAT, tokenizer)
    assert (answer.text, answer.finish, answer.output_tokens) == ("abc", "stop", 4)


def test_a_stop_text_that_is_a_special_token(tmp_path: Path) -> None:
    tokenizer = save_tiny(tmp_path, STYLES["chatml"])
    written = ["?", *"abc", "<|im_start|>", "!"]
    job = Job(max_tokens=20, stop=("<|im_start|>",))
    answer = answered(tmp_path, written, job, "abc?", tokenizer)
    assert (answer.text, answer.finish) == ("abc", "stop")
    answer = answered(tmp_path, written, Job(max_tokens=6), "abc?", tokenizer)
    assert (answer.text, answer.finish) == ("abc!!", "length")


def test_an_end_that_is_no_token_ends_the_answer_to_a_chat(tmp_path: Path) -> None:
    template = STYLES["chatml"].template.replace("<|im_end|>", "<END>")
    tokenizer = save_tiny(tmp_path, Style(template, (), "</s>", None))
    written = ["Ċ", *"abc", *"<END>", "!"]
    answer = answered(tmp_path, written, Job(max_tokens=20), CHAT, tokenizer)
    assert (answer.text, answer.finish) == ("abc", "stop")


def test_vllm_is_told_the_same() -> None:
    """With SamplingParams that keep what they are given: vLLM has an environment of its own."""
    names = SimpleNamespace(
        SamplingParams=lambda **given: given,
        RequestOutputKind=SimpleNamespace(CUMULATIVE="cumulative", FINAL_ONLY="final"),
    )
    tokenizer = tokenizer_of(STYLES["gemma"])
    job = Job(stop=("\n\n", "<start_of_turn>"))
    item = prepare(tokenizer, Request(id=0, prompt=CHAT), job, 200)
    (part,) = TASKS["generate"](item, names, []).start()
    ids = tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>", "<start_of_turn>"])
    assert part.params["stop_token_ids"] == ids
    assert part.params["stop"] == ["\n\n", "<start_of_turn>"]
