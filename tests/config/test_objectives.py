"""Objectives: their rows in each shape, broken rows, and what is refused before a run."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from llmops_kernel.config.models.objectives import OBJECTIVES, recorded
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.objective_rows import Teacher, label_names
from llmops_kernel.config.row_formats import Fault, fields_of, recognised, shaped

USER = {"role": "user", "content": "why?"}
GOOD = {"role": "assistant", "content": "so"}
BAD = {"role": "assistant", "content": "no"}
READ = {**USER, "weight": 0}
PAIR = {"parts": [{"messages": [READ, GOOD]}, {"messages": [READ, BAD]}]}


TAUGHT = {
    "prompt_tokens": 3,
    "target_tokens": [5, 2],
    "top_logprobs": {"token_ids": [[5, 6], [2, 7]], "logprobs": [[-0.5, -1.5], [-0.25, -2.0]]},
}
LEARNT = {
    "parts": [{"messages": [READ, GOOD]}],
    "teacher": Teacher(
        (5, 2), 3, 2, struct.pack("4i", 5, 6, 2, 7), struct.pack("4f", -0.5, -1.5, -0.25, -2.0)
    ),
}


def texts(*parts: str) -> dict[str, Any]:
    return {"parts": [{"text": part} for part in parts]}


SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "texts": ("preference", {"prompt": "why?", "chosen": "so", "rejected": "no"}, PAIR),
    "messages": ("preference", {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, PAIR),
    "two chats": ("preference", {"chosen": [USER, GOOD], "rejected": [USER, BAD]}, PAIR),
    "a prompt that both repeat": (
        "preference",
        {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        PAIR,
    ),
    "rated": (
        "rated",
        {"prompt": "why?", "completion": "so", "label": True},
        {"parts": [{"messages": [READ, GOOD]}], "target": 1.0},
    ),
    "rated by a number": (
        "rated",
        {"prompt": "why?", "completion": "so", "label": 0},
        {"parts": [{"messages": [READ, GOOD]}], "target": 0.0},
    ),
    "pairs to be rated": ("rated", {"prompt": "why?", "chosen": "so", "rejected": "no"}, PAIR),
    "a teacher": ("distilled", {**TAUGHT, "messages": [USER, GOOD]}, LEARNT),
    "a teacher's prompt": ("distilled", {**TAUGHT, "prompt": "why?", "reference": "so"}, LEARNT),
    "a label": ("labelled", {"text": "a", "label": "x"}, {**texts("a"), "target": "x"}),
    "several": ("labelled", {"text": "a", "label": ["x"]}, {**texts("a"), "target": ["x"]}),
    "a chat": (
        "labelled",
        {"messages": [USER], "label": 3},
        {"parts": [{"messages": [USER]}], "target": 3},
    ),
    "a pair": ("pairs", {"query": "a", "positive": "b"}, texts("a", "b")),
    "negatives": (
        "pairs",
        {"query": "a", "positive": "b", "negatives": ["c", "d"]},
        texts("a", "b", "c", "d"),
    ),
    "one negative": (
        "pairs",
        {"query": "a", "positive": "b", "negative": "c"},
        texts("a", "b", "c"),
    ),
    "a score": (
        "pairs",
        {"text1": "a", "text2": "b", "score": 1},
        {**texts("a", "b"), "target": 1.0},
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_rows_are_read_in_each_shape(case: str) -> None:
    row_format, row, expected = SHAPES[case]
    assert shaped(row, row_format) == expected


BROKEN: dict[str, tuple[str, dict[str, Any], str]] = {
    "one side": ("preference", {"prompt": "why?", "chosen": "so"}, "has only the keys"),
    "null": ("preference", {"prompt": "a", "chosen": "so", "rejected": None}, "`rejected` is null"),
    "empty": ("preference", {"prompt": "a", "chosen": "so", "rejected": " "}, "no answer"),
    "equal": ("preference", {"prompt": "a", "chosen": "so", "rejected": "so"}, "are equal"),
    "no prompt": ("preference", {"chosen": "so", "rejected": "no"}, "without a `prompt`"),
    "nothing common": ("preference", {"chosen": [GOOD], "rejected": [BAD]}, "no common beginning"),
    "a question": ("preference", {"prompt": "a", "chosen": [USER], "rejected": [BAD]}, "no answer"),
    "no judgement": ("rated", {"prompt": "a", "completion": "b", "label": "good"}, "'good'"),
    "not scored": ("distilled", {**TAUGHT, "top_logprobs": None, "error": "long"}, "teacher: long"),
    "no chat": ("distilled", TAUGHT, "no `messages`, nor `prompt`"),
    "no answer": ("distilled", {**TAUGHT, "messages": [USER]}, "no answer of the assistant"),
    "fewer tokens": (
        "distilled",
        {**TAUGHT, "messages": [USER, GOOD], "target_tokens": [5]},
        "has 1",
    ),
    "no label": ("labelled", {"text": "a", "label": None}, "`label` is null"),
    "NaN": ("labelled", {"text": "a", "label": float("nan")}, "`label` is nan"),
    "no text": ("labelled", {"label": "x"}, "no `text`"),
    "no positive": ("pairs", {"query": "a", "positive": ""}, "`positive` is empty"),
    "no query": ("pairs", {"query": None, "positive": "b"}, "`query` is null"),
    "itself": ("pairs", {"query": "a", "positive": "b", "negatives": ["b"]}, "positive itself"),
    "no number": ("pairs", {"text1": "a", "text2": "b", "score": "high"}, "`score` is a text"),
    "half": ("pairs", {"query": "a", "positive": "\ud800"}, "half of a character"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_row_has_one_sentence_and_what_to_do(case: str) -> None:
    row_format, row, words = BROKEN[case]
    fault = shaped(row, row_format)
    assert isinstance(fault, Fault)
    assert words in fault.message
    assert fault.hint


def test_imitation_reads_what_it_read_before() -> None:
    assert recognised(["chosen", "rejected"], "auto") is None
    assert "chosen" not in fields_of("auto")
    assert fields_of("preference")[:2] == ("chosen", "rejected")
    assert DataConfig(train="a.jsonl") == TrainingConfig.model_validate(BASE).with_rows_read().data


BASE: dict[str, Any] = {"model": "tiny-llama", "data": {"train": "a.jsonl"}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "packing": ({"data": {"train": "a.jsonl", "packing": True}}, "data.packing"),
    "format": ({"data": {"train": "a.jsonl", "format": "chat"}}, "data.format"),
    "of a source": (
        {"data": {"train": [{"path": "a.jsonl", "format": "text"}]}},
        "data.train.0.format",
    ),
    "streaming": ({"data": {"train": "a.jsonl", "streaming": True}}, "data.streaming"),
    "padding": ({"performance": {"padding_free": True}}, "performance.padding_free"),
    "answers": (
        {"data": {"train": "a.jsonl", "eval": "b.jsonl"}, "evaluation": {"generate": True}},
        "evaluation.generate",
    ),
    "columns": (
        {"data": {"train": "a.jsonl", "columns": {"instruction": "q"}}},
        "data.columns",
    ),
}


def paths(values: dict[str, Any]) -> set[str]:
    config = TrainingConfig.model_validate({**BASE, **values}, context={"rules": False})
    return {broken.path for broken in config.broken_rules()}


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES.names if name != "sft"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_only_imitation_has_is_refused(case: str, objective: str) -> None:
    values, path = REFUSED[case]
    assert path in paths({**values, "objective": objective})


def test_each_objective_is_accepted_with_each_method_it_can_have() -> None:
    for name in OBJECTIVES.names:
        assert paths({"objective": name}) == set()
        assert paths({"objective": name, "method": "full"}) == (
            {"method.type"} if name == "kto" else set()
        )
    single = {"training": {"micro_batch_size": 1, "global_batch_size": 4}}
    assert paths({"objective": "kto", **single}) == {"training.micro_batch_size"}
    assert paths({"objective": "embed", "evaluation": {"prompts": ["a"]}}) >= {"evaluation.prompts"}


def test_what_a_model_returns_decides_how_it_is_loaded() -> None:
    classes = {name: recorded({"objective": name}).auto_class for name in OBJECTIVES.names}
    assert classes["dpo"] == classes["sft"] == "AutoModelForCausalLM"
    assert classes["embed"] == "AutoModel"
    assert {classes[name] for name in ("reward", "classify", "regress")} == {
        "AutoModelForSequenceClassification"
    }
    assert recorded({}).type == "sft"


def test_numbers_of_a_table_are_the_labels_of_its_text() -> None:
    assert label_names(1.0) == label_names(1) == label_names("1") == ["1"]
    assert label_names([1.5, "a"]) == ["1.5", "a"]


OPTIMIZERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "muon, sharded": (
        {"optimizer": {"type": "muon"}, "parallelism": {"strategy": "zero2", "num_workers": 2}},
        {"optimizer.type"},
    ),
    "muon": ({"optimizer": {"type": "muon"}}, set()),
    "8 bits, offloaded": (
        {
            "optimizer": {"type": "adamw_8bit"},
            "parallelism": {"strategy": "zero2", "offload_optimizer": "cpu"},
        },
        {"optimizer.type"},
    ),
    "two of them": (
        {"optimizer": {"type": "adafactor"}, "training_arguments": {"optim": "sgd"}},
        {"training_arguments.optim"},
    ),
    "both lists": (
        {"training": {"freeze": ["a"], "train_only": ["b"]}},
        {"training.train_only"},
    ),
    "no model": ({"model": {"dtype": "float32"}}, {"model.id"}),
    "a step of nothing": ({"model": {"id": "tiny-llama", "step": 3}}, {"model.step"}),
    "a run": ({"model": {"run": "last", "step": 3}}, set()),
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_what_optimizer_weights_and_start_cannot_be(case: str) -> None:
    values, expected = OPTIMIZERS[case]
    assert paths(values) == expected
