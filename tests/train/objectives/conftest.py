"""Rows of each objective, a config over them, and the model that its training begins with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from llmops_kernel.models.catalogue import prepare

STEPS = 20
COUNT = 82
"""Not a multiple of the global batch: 4 workers' worth of rows ends with fewer."""

WORDS = ("salt", "rice", "bean", "lime", "corn", "leek", "plum")


def word(number: int) -> str:
    return WORDS[number % len(WORDS)]


ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "pairs": lambda i: {
        "prompt": f"what is {i} with {word(i)}?",
        "chosen": f"it is {word(i)}, {word(i * 3 + 1)} and {i}",
        "rejected": f"no {word(i + 2)}" + " at all" * (i % 4),
    },
    "short": lambda i: {**ROWS["pairs"](i), "prompt": "?"},
    "chats": lambda i: {
        "messages": [
            {"role": "user", "content": f"what is {i}?"},
            {"role": "assistant", "content": f"it is {word(i)}"},
            {"role": "user", "content": "and then?"},
            {"role": "assistant", "content": f"{word(i + 1)}" + " again" * (i % 3)},
        ]
    },
    "rated": lambda i: {
        "prompt": f"what is {i} with {word(i)}?",
        "completion": f"it is {word(i)}" + f" and {word(i + 1)}" * (i % 3),
        "label": i % 3 != 0,
    },
    "labels": lambda i: {"text": f"dish {i} of {word(i)} for {i % 5}", "label": word(i * i)},
    "several": lambda i: {
        "text": f"dish {i} of {word(i)}",
        "label": [name for n, name in enumerate(WORDS) if (i + n) % 3 == 0],
    },
    "numbers": lambda i: {"text": f"dish {i} of {word(i)}", "label": (i % 10) / 10},
    "queries": lambda i: {
        "query": f"{word(i)} dish {i}",
        "positive": f"a dish of {word(i)} named {i}",
        "negatives": [f"a dish of {word(i + 1)} named {i + 1000}"],
    },
    "scores": lambda i: {"text1": f"{word(i)} {i}", "text2": f"a {word(i)}", "score": i % 4 / 4},
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a file of rows of each kind."""
    folder = tmp_path_factory.mktemp("objectives")
    for name, make in ROWS.items():
        lines = [json.dumps(make(number)) + "\n" for number in range(COUNT)]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    rows = [json.dumps(row) + "\n" for row in taught()]
    (folder / "taught.jsonl").write_text("".join(rows))
    return folder


_SHARPNESS = 6


def taught(top_k: int = 8) -> Iterator[dict[str, Any]]:
    """Yield chats with the most probable tokens of a teacher, by plain Transformers."""
    source = prepare("tiny-llama")
    tokenizer = AutoTokenizer.from_pretrained(source)
    teacher = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in teacher.parameters():
            weight.add_(torch.randn_like(weight) * weight.std() * 0.5)
    for number in range(COUNT):
        question = {"role": "user", "content": f"what is {number} with {word(number)}?"}
        answer = f"it is {word(number)}" + f" and {word(number + 1)}" * (number % 3)
        chat = [question, {"role": "assistant", "content": answer}]
        before, whole = (
            tokenizer(
                tokenizer.apply_chat_template(part, tokenize=False, add_generation_prompt=is_asked),
                add_special_tokens=False,
            ).input_ids
            for part, is_asked in ((chat[:1], True), (chat, False))
        )
        with torch.no_grad():
            logits = teacher(input_ids=torch.tensor([whole])).logits[0, len(before) - 1 : -1]
        # Of random weights all tokens are about equally probable, which no teacher thinks.
        values, ids = (logits * _SHARPNESS).log_softmax(-1).topk(top_k)
        yield {
            "messages": chat,
            "prompt_tokens": len(before),
            "target_tokens": whole[len(before) :],
            "top_logprobs": {"token_ids": ids.tolist(), "logprobs": values.tolist()},
        }


@pytest.fixture(scope="session")
def training(make_config: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a config whose rows are read in their order, so that others can read them alike."""

    def make(objective: dict[str, Any], rows: str, **sections: Any) -> Any:
        data = {"train": f"{rows}.jsonl", "shuffle": False, **sections.pop("data", {})}
        size = {"micro_batch_size": 4, "global_batch_size": 4, "max_steps": STEPS}
        return make_config(
            objective=objective,
            data=data,
            training={**size, **sections.pop("training", {})},
            optimizer={"learning_rate": 1e-3, **sections.pop("optimizer", {})},
            performance={"group_by_length": False},
            **sections,
        )

    return make
