"""What was asked for and is not in force is found: activation checkpointing, compiling, TF32..."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch

from llmops_kernel.train.parallelism import zero
from llmops_kernel.train.verify import (
    describe_kernels,
    describe_speed,
    optimizer_state_words,
    speed_problems,
)
from tests.train.measure.families import build

CPU = torch.device("cpu")


def a_trainer(model: Any, **more: Any) -> Any:
    wrapped = {"model_wrapped": model, **more}
    return SimpleNamespace(model=model, args=SimpleNamespace(device=CPU), **wrapped)


def test_each_setting_that_is_not_in_force_is_named(make_config: Callable[..., Any]) -> None:
    config = make_config(
        parallelism={"gradient_checkpointing": True},
        performance={"compile": True, "tf32": True, "fused_loss": True},
    )
    found = list(speed_problems(a_trainer(build("llama", device="cpu")), config))
    assert [problem.partition(" was asked for")[0] for problem in found] == [
        "gradient_checkpointing",
        "performance.compile",
        "performance.tf32",
        "performance.fused_loss",
    ]
    assert not list(speed_problems(a_trainer(build("llama", device="cpu")), make_config()))


def test_settings_in_force_are_seen_and_said(
    make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")
    config = make_config(
        parallelism={"gradient_checkpointing": True},
        performance={"compile": True, "tf32": True, "fused_loss": True},
    )
    model = build("llama", device="cpu")
    model.activation_checkpointing_enable()

    def lce_forward(self: Any) -> None:
        pass

    lce_forward.__module__ = "liger_kernel.transformers.model.llama"
    model.forward = MethodType(lce_forward, model)
    trainer = a_trainer(model, model_wrapped=torch.compile(model))
    assert not list(speed_problems(trainer, config))
    assert describe_speed(trainer) == "activation checkpointing, compiled, fused loss by Liger"
    model.compile()
    assert "compiled" in describe_speed(a_trainer(model))


def engine(stage: int, **places: str) -> Any:
    """An engine as DeepSpeed describes itself; its class has the name that is looked for."""

    def place(name: str) -> Any:
        return lambda: SimpleNamespace(device=places[name]) if name in places else None

    kind = type("DeepSpeedEngine", (), {})
    made = kind()
    made.zero_optimization_stage = lambda: stage
    made.zero_offload_optimizer = place("optimizer")
    made.zero_offload_param = place("params")
    return made


@pytest.mark.parametrize(
    ("asked", "places", "problem"),
    [
        ({"offload_params": True}, {"params": "cpu"}, ""),
        ({"offload_params": True}, {}, "offload_params: cpu was asked for, and DeepSpeed would"),
        ({}, {"params": "cpu"}, "offload_params: none was asked for"),
        ({"offload_optimizer": "cpu"}, {}, "offload_optimizer: cpu was asked for"),
        (
            {"deepspeed": {"zero_optimization": {"offload_param": {"device": "nvme"}}}},
            {"params": "nvme"},
            "",
        ),
    ],
)
def test_weights_and_states_are_where_they_were_asked_for(
    make_config: Callable[..., Any], asked: dict[str, Any], places: dict[str, str], problem: str
) -> None:
    config = make_config(parallelism={"strategy": "zero3", **asked})
    found = zero.engine_problem(a_trainer(engine(3, **places)), config)
    assert found.startswith(problem) if problem else not found


def test_the_states_of_the_optimizer_are_read_and_not_concluded_from_the_weights() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    adam = torch.optim.AdamW([weight])
    assert optimizer_state_words(SimpleNamespace(model_wrapped=None, optimizer=adam)) == "unknown"
    weight.grad = torch.ones_like(weight)
    adam.step()
    wrapper = SimpleNamespace(optimizer=adam)
    trainer = SimpleNamespace(model_wrapped=None, optimizer=wrapper)
    assert optimizer_state_words(trainer) == "float32"
    for state in adam.state.values():  # As bitsandbytes' 8-bit AdamW keeps them.
        state.update(exp_avg=torch.zeros(4, 4, dtype=torch.uint8), absmax=torch.zeros(2))
        state["exp_avg_sq"] = state["exp_avg"]
    assert optimizer_state_words(trainer) == "uint8 and float32"


def test_the_kernel_that_pytorch_chooses_is_named() -> None:
    model = build("qwen3", device="cpu")
    assert describe_kernels(model, "eager", "float32", CPU) == "eager"
    words = describe_kernels(model, "sdpa", "float32", CPU)
    assert words in ("sdpa (flash)", "sdpa (math)", "sdpa (flash; math with a mask)")
    assert "another package" in describe_kernels(model, "flash_attention_2", "bfloat16", CPU)
