"""An evaluation's answers are greedy and end where the model's chat template ends a turn."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, GenerationConfig

from llmops_kernel.metrics.events import AnyEvent, Event
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.collate import Collator
from llmops_kernel.train.data.examples import own_prompts, prompts, tokenise
from llmops_kernel.train.evaluation import Evaluator
from llmops_kernel.train.hooks import Hooks
from tests.chat_templates import STYLES, Style, follows, save_tiny

Config = Callable[..., Any]
ROW = {"prompt": "abc?", "completion": "abc"}
NO_TOKEN = Style(STYLES["chatml"].template, (), "<|endoftext|>", None)


def evaluated(model: Any, tokenizer: Any, config: Any, folder: Path) -> Any:
    events: list[Event] = []
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    context = WorkerContext(
        run_id="test", folder=folder, workspace=folder, journal=journal, say=events.append
    )
    evaluator = Evaluator(
        examples=tokenise([ROW], tokenizer=tokenizer, data=config.data, hooks=Hooks()).examples,
        prompts=prompts([ROW], tokenizer=tokenizer, data=config.data, hooks=Hooks()),
        own_prompts=own_prompts(["abc!"], tokenizer=tokenizer, data=config.data),
        tokenizer=tokenizer,
        collator=Collator(pad_token_id=tokenizer.pad_token_id),
        hooks=Hooks(),
        config=config,
        context=context,
        accelerator=SimpleNamespace(
            unwrap_model=lambda one: one, autocast=contextlib.nullcontext, device="cpu"
        ),
    )
    evaluator(model, 1)
    journal.close()
    return next(event for event in events if event.kind == "eval")


@pytest.mark.parametrize(
    ("style", "last", "end"),
    [
        (STYLES["gemma"], "\n", "<end_of_turn>"),
        (STYLES["phi3"], "\n", "<|end|>"),
        (STYLES["glm"], "\n", "<|user|>"),
        (STYLES["chatml"], "\n", "<|im_end|>"),  # A base model: its own end token is another.
        (NO_TOKEN, "\n", "<|im_end|>"),
        (STYLES["chatml"], "\n", "<|im_start|>"),  # Listed by the generation settings alone.
    ],
    ids=["gemma", "phi3", "glm", "chatml", "no token", "listed"],
)
def test_the_answer_is_the_reference(
    make_config: Config, tmp_path: Path, style: Style, last: str, end: str
) -> None:
    tokenizer = save_tiny(tmp_path / "model", style, repetition_penalty=1.5)
    model = AutoModelForCausalLM.from_pretrained(str(tmp_path / "model")).eval()
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    if end == "<|im_start|>":
        model.generation_config.eos_token_id = [start]
    after = [*end] if tokenizer.convert_tokens_to_ids(end) is None else [end]
    if len(after) > 1:  # Of a text each character once: the model knows the last token only.
        tokenizer.chat_template = style.template.replace("<|im_end|>", "<END>")
        after = [*"<END>"]
    written = [tokenizer.tokenize(last)[0], *"abc", *after, "!", "."]
    follows(model, tokenizer, written)
    config = make_config(
        data={"eval": "eval.jsonl"}, evaluation={"max_new_tokens": 24, "generate": True}
    )
    event = evaluated(model, tokenizer, config, tmp_path)
    measured, own = event.samples
    assert (measured["row"], measured["prediction"]) == ("1", "abc")
    assert measured["exact_match"] == "1"
    assert own["prediction"] == "abc"


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_result_lists_what_ends_an_answer(
    make_config: Config, workspace: Path, tmp_path: Path, method: str
) -> None:
    from tests.train.test_loop import of, run

    tokenizer = save_tiny(workspace / "base", STYLES["gemma"], repetition_penalty=1.5)
    (workspace / "one.jsonl").write_text((json.dumps(ROW) + "\n") * 8)
    config = make_config(
        model=str(workspace / "base"),
        data={"train": "one.jsonl"},
        method={"type": method} | ({"target_modules": ["q_proj"]} if method == "lora" else {}),
        output={"merge_adapter": method == "lora"},
        training={"max_steps": 2},
    )
    events: list[AnyEvent] = run(config, tmp_path / "run", workspace)
    assert of(events, "output")
    ids = tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    folders = ["output"] + (["output-merged"] if method == "lora" else [])
    for name in folders:
        found = GenerationConfig.from_pretrained(str(tmp_path / "run" / name))
        assert found.eos_token_id == ids
        assert found.repetition_penalty == 1.5  # As the model's author wants it for chats.
