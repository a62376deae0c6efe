"""Names of Transformers, PEFT and other trainers are read where they say the same as a field."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.config.assist import diagnose, examine, hover
from llmops_kernel.config.assist.file_kinds import TRAIN
from llmops_kernel.config.models.fields import spec_of
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.names import ACCEPTED, ALIASES, OWNED
from llmops_kernel.config.reading.document import flatten
from llmops_kernel.errors import ConfigError
from tests.configs import training_config_from_dict, training_config_from_text

BASE: dict[str, Any] = {"model": "tiny-llama", "data": "rows.jsonl"}
TEXT = "model: tiny-llama\ndata: rows.jsonl\n"
PLAIN = [
    ({"lr": 1e-3}, "optimizer.learning_rate", 1e-3),
    ({"learning_rate": 1e-3}, "optimizer.learning_rate", 1e-3),
    ({"optimizer": {"lr": 1e-3}}, "optimizer.learning_rate", 1e-3),
    ({"lr_scheduler_type": "linear"}, "optimizer.lr_scheduler_type", "linear"),
    ({"gradient_clipping": 0.5}, "optimizer.max_grad_norm", 0.5),
    ({"num_train_epochs": 3}, "training.num_epochs", 3.0),
    ({"training": {"num_train_epochs": 3}}, "training.num_epochs", 3.0),
    ({"max_steps": 7}, "training.max_steps", 7),
    ({"max_seq_length": 64}, "data.max_length", 64),
    ({"cutoff_len": 64}, "data.max_length", 64),
    ({"validation_file": "eval.jsonl"}, "data.eval", "eval.jsonl"),
    ({"lora_r": 4}, "method.r", 4),
    ({"method": {"rank": 4}}, "method.r", 4),
    ({"method": "qlora", "lora_alpha": 8}, "method.lora_alpha", 8),
    ({"lora_dropout": 0.1}, "method.lora_dropout", 0.1),
    ({"lora_target_modules": ["q_proj"]}, "method.target_modules", ["q_proj"]),
    ({"per_device_eval_batch_size": 2}, "evaluation.micro_batch_size", 2),
    ({"auto_find_batch_size": True}, "training.micro_batch_size", "auto"),
    ({"training": {"auto_find_batch_size": True}}, "training.micro_batch_size", "auto"),
    ({"save_steps": 5}, "checkpoint.every_steps", 5),
    ({"checkpoint": 5, "save_total_limit": 1}, "checkpoint.keep", 1),
    ({"data": {"train": "a", "eval": "b"}, "eval_steps": 5}, "evaluation.every_steps", 5),
    ({"output_dir": "out"}, "output.url", "out"),
    ({"run_name": "first"}, "name", "first"),
    ({"attn_implementation": "eager"}, "model.attention", "eager"),
    ({"gradient_checkpointing": True}, "parallelism.gradient_checkpointing", True),
    ({"tf32": True}, "performance.tf32", True),
    ({"bf16": True}, "model.dtype", "bfloat16"),
    ({"use_cpu": True}, "parallelism.use_gpu", False),
    ({"train_on_inputs": True}, "data.loss_on", "all"),
    ({"train_on_inputs": False}, "data.loss_on", "answer"),
    ({"max_steps": 15, "warmup_ratio": 0.1}, "optimizer.warmup_steps", 2),
    ({"training": {"max_steps": 10}, "warmup_ratio": 0.1}, "optimizer.warmup_steps", 1),
]
BATCHES = [
    ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}, 1, (2, 6)),
    ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}, 4, (2, 24)),
    ({"per_device_train_batch_size": 8}, 2, (8, 16)),
    ({"gradient_accumulation_steps": 2}, 1, (4, 8)),
    ({"per_device_train_batch_size": 2, "training": {"global_batch_size": 8}}, 2, (2, 8)),
    (
        {"training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}},
        1,
        (8, 16),
    ),
    ({"training": {"micro_batch_size": 8, "gradient_accumulation_steps": 2}}, 1, (8, 16)),
]
EXPLAINED = [
    {"bf16": False},
    {"fp16": True},
    {"warmup_ratio": 0.1},
    {"warmup_ratio": 5, "max_steps": 10},
    {"deepspeed": "ds.json"},
    {"dataset": "alpaca"},
    {"batch_size": 4},
    {"rank": 4},
    {"auto_find_batch_size": False},
    {"gradient_accumulation_steps": "two"},
]


@pytest.mark.parametrize(("written", "field", "value"), PLAIN, ids=str)
def test_a_name_that_says_the_same_is_read_as_the_field(
    written: dict[str, Any], field: str, value: Any
) -> None:
    assert flatten(training_config_from_dict(BASE | written))[field] == value


@pytest.mark.parametrize(("written", "workers", "sizes"), BATCHES, ids=str)
def test_batch_sizes_as_transformers_counts_them(
    written: dict[str, Any], workers: int, sizes: tuple[int, int]
) -> None:
    config = training_config_from_dict(BASE | {"parallelism": {"num_workers": workers}} | written)
    training = config.training
    assert (training.micro_batch_size, training.global_batch_size) == sizes


@pytest.mark.parametrize("written", EXPLAINED, ids=str)
def test_a_name_that_may_say_something_else_is_explained(written: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        training_config_from_dict(BASE | written)
    (problem,) = caught.value.problems
    assert problem.path in written
    assert problem.suggestion


def test_every_accepted_name_leads_to_a_field_and_is_explained_alike() -> None:
    fields = {".".join(path) for path in spec_of(TrainingConfig).leaves}
    assert {alias.field for alias in ACCEPTED.values()} <= fields
    for name in ACCEPTED.keys() & ALIASES.keys():
        assert ALIASES[name] == ACCEPTED[name].field
    for name in ACCEPTED.keys() & OWNED.keys():
        assert ACCEPTED[name].field in OWNED[name]


@pytest.mark.parametrize(
    ("written", "both"),
    [
        ({"lr": 1e-3, "optimizer": {"learning_rate": 1e-4}}, ("lr", "optimizer.learning_rate")),
        ({"lr": 1e-3, "learning_rate": 1e-4}, ("lr", "learning_rate")),
        (
            {"auto_find_batch_size": True, "per_device_train_batch_size": 8},
            ("auto_find_batch_size", "per_device_train_batch_size"),
        ),
        ({"bf16": True, "model": {"id": "x", "dtype": "float32"}}, ("bf16", "model.dtype")),
        (
            {"gradient_accumulation_steps": 3, "training": {"global_batch_size": 16}},
            ("gradient_accumulation_steps", "training.global_batch_size"),
        ),
    ],
)
def test_two_values_are_a_problem_that_names_both(
    written: dict[str, Any], both: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        training_config_from_dict(BASE | written)
    (problem,) = caught.value.problems
    assert all(name in str(problem) for name in both)


def test_the_same_value_twice_is_none() -> None:
    config = training_config_from_dict(BASE | {"lr": 1e-3, "optimizer": {"learning_rate": 1e-3}})
    assert config.optimizer.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("text", "override", "field", "value"),
    [
        ("", "num_train_epochs=3", "training.num_epochs", 3.0),
        ("training: {num_epochs: 2}\n", "num_train_epochs=3", "training.num_epochs", 3.0),
        ("num_train_epochs: 2\n", "num_epochs=3", "training.num_epochs", 3.0),
        ("num_train_epochs: 2\n", "training.num_epochs=3", "training.num_epochs", 3.0),
        ("lr: 1e-3\n", "optimizer={learning_rate: 1e-4}", "optimizer.learning_rate", 1e-4),
        ("", "gradient_accumulation_steps=3", "training.global_batch_size", 12),
        ("model: {id: x, dtype: float32}\n", "bf16=true", "model.dtype", "bfloat16"),
    ],
)
def test_an_override_wins_whatever_its_name(
    text: str, override: str, field: str, value: Any
) -> None:
    base = TEXT if "model:" not in text else "data: rows.jsonl\n"
    assert flatten(training_config_from_text(base + text, [override]))[field] == value


@pytest.mark.parametrize("last", ["lr=3", "learning_rate=3", "optimizer.learning_rate=3"])
def test_the_last_override_of_a_field_wins_whatever_its_name(last: str) -> None:
    given = ["optimizer.learning_rate=1", "lr=2", last]
    assert training_config_from_text(TEXT, given).optimizer.learning_rate == 3


def test_the_batch_of_a_device_accumulates_nothing_as_an_override_too() -> None:
    training = training_config_from_text(TEXT, ["per_device_train_batch_size=2"]).training
    assert (training.micro_batch_size, training.global_batch_size) == (2, 2)


def test_editors_see_own_names_and_the_line_as_it_was_written() -> None:
    values = examine(TRAIN, TEXT + "lora_r: 4\nbf16: true\n").values
    assert values is not None
    assert values["method"] == {"r": 4}
    assert values["model"] == {"id": "tiny-llama", "dtype": "bfloat16"}
    (wrong,) = diagnose(TRAIN, TEXT + "seed: 1\nlr: -1\n")
    assert (wrong.path, wrong.line, wrong.column) == ("optimizer.learning_rate", 4, 4)
    shown = hover(TRAIN, TEXT + "lr: 1e-3\n", line=3, column=1)
    assert shown is not None
    assert "optimizer.learning_rate" in shown.text
