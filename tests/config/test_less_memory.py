"""Settings that need less memory: each is valid and needs less, and they come to an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given
from pydantic import ValidationError

from llmops_kernel.config.less_memory import changed, describe_changes, next_setting
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.planner.architecture import Architecture
from llmops_kernel.planner.memory import memory
from llmops_kernel.services.plan_inputs import Guess, Machine, planned_setup
from tests.metrics.test_flops import CONFIGS

ARCHITECTURES = [architecture for values in CONFIGS.values()
                 if (architecture := Architecture.from_config(values)) is not None]  # fmt: skip
MOST_SETTINGS = 16
"""A micro batch of 64 is halved 6 times, so is an evaluation's, and two switches are left."""


@st.composite
def configs(draw: st.DrawFn) -> TrainingConfig:
    micro, passes = draw(st.integers(1, 64)), draw(st.integers(1, 6))
    strategy = draw(st.sampled_from(["ddp", "fsdp", "zero1", "zero2", "zero3"]))
    workers = draw(st.integers(1, 4))
    values: dict[str, Any] = {
        "model": "tiny-llama",
        "data": {"train": "rows.jsonl", "max_length": draw(st.sampled_from([64, 512, 4096]))},
        "objective": draw(st.sampled_from(["sft", "dpo", "kto", "embed", "classify"])),
        "method": draw(st.sampled_from(["full", "lora", "qlora"])),
        "parallelism": {
            "strategy": strategy,
            "num_workers": workers,
            "gradient_checkpointing": draw(st.booleans()),
            "offload_optimizer": draw(st.booleans()),
        },
        "training": {"micro_batch_size": micro, "global_batch_size": micro * passes * workers},
        "evaluation": {"micro_batch_size": draw(st.sampled_from([None, 1, 8, 33]))},
    }
    try:
        return TrainingConfig.model_validate(values)
    except ValidationError:
        assume(False)
        raise


def planned(config: TrainingConfig, architecture: Architecture, *, on_gpu: bool) -> Any:
    machine = Machine(devices=8, name="GPU") if on_gpu else Machine(name="CPU")
    setup = planned_setup(config, architecture, machine, Guess(), [])
    # One step of several micro batches keeps its gradients between them, one of one does not: apart
    # from that, half of it needs less.
    return memory(replace(setup, gradient_accumulation_steps=2))


@given(configs(), st.sampled_from(ARCHITECTURES), st.booleans(), st.booleans())
def test_each_setting_is_valid_and_needs_less_and_the_last_comes_soon(
    config: TrainingConfig, architecture: Architecture, on_gpu: bool, in_evaluation: bool
) -> None:
    settings = 0
    while changes := next_setting(config, on_gpu=on_gpu, in_evaluation=in_evaluation):
        smaller = changed(config, changes)  # Raises ValidationError for an invalid one.
        assert smaller.training.global_batch_size == config.training.global_batch_size
        assert smaller.model_dump() != config.model_dump()
        (path,) = changes
        before = planned(config, architecture, on_gpu=on_gpu)
        after = planned(smaller, architecture, on_gpu=on_gpu)
        has_less = before.activations > 0 or "offload" in path
        if path.startswith(("evaluation.", "objective.")):  # The planner knows neither.
            assert after == before
        elif has_less:
            assert after.total < before.total, (path, before, after)
        else:  # The optimizer's step needs most, and it is the same for each micro batch.
            assert after.total <= before.total, (path, before, after)
        config = smaller
        settings += 1
    assert settings < MOST_SETTINGS
    assert config.parallelism.gradient_checkpointing
    if not config.objective.shares_batch:
        assert config.training.micro_batch_size == 1


BASE: dict[str, Any] = {
    "model": "tiny-llama",
    "data": {"train": "rows.jsonl"},
    "parallelism": {"strategy": "zero2", "num_workers": 2},
    "training": {"micro_batch_size": 6, "global_batch_size": 24},
}


def all_settings(values: dict[str, Any], **where: bool) -> list[dict[str, Any]]:
    config, changes = TrainingConfig.model_validate({**BASE, **values}), []
    while more := next_setting(config, **({"on_gpu": True} | where)):
        changes.append(more)
        config = changed(config, more)
    return changes


LAST: list[dict[str, Any]] = [
    {"parallelism.gradient_checkpointing": True},
    {"parallelism.offload_optimizer": "cpu"},
]


@pytest.mark.parametrize(
    ("values", "where", "expected"),
    [
        ({}, {}, [{"training.micro_batch_size": 3}, {"training.micro_batch_size": 1}, *LAST]),
        # A worker's memory without a GPU is the host's.
        ({}, {"on_gpu": False}, [{"training.micro_batch_size": 3},
                                 {"training.micro_batch_size": 1}, LAST[0]]),
        # Another number of rows that are left over is another number of steps.
        ({"training_arguments": {"dataloader_drop_last": True}}, {}, LAST),
        # The rows of a micro batch are compared with each other.
        ({"objective": "kto"}, {}, LAST),
        ({"objective": {"type": "embed", "mini_batch_size": 3}}, {},
         [{"objective.mini_batch_size": 1}, *LAST]),
        ({"evaluation": {"micro_batch_size": 4}, "training": {"micro_batch_size": 1}},
         {"in_evaluation": True},
         [{"evaluation.micro_batch_size": 2}, {"evaluation.micro_batch_size": 1}, *LAST]),
    ],
)  # fmt: skip
def test_settings_in_their_order(
    values: dict[str, Any], where: dict[str, bool], expected: list[dict[str, Any]]
) -> None:
    assert all_settings(values, **where) == expected


def test_changes_are_described_with_what_was_before() -> None:
    config = TrainingConfig.model_validate(BASE)
    words = describe_changes(config, {"training.micro_batch_size": 3, **LAST[0]})
    assert words == (
        "micro_batch_size=3 (was 6, global batch kept), parallelism.gradient_checkpointing=true"
    )
