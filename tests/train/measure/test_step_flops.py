"""FLOPs of a step: believed where the modules and PyTorch agree, else a dash and a warning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from llmops_kernel.metrics.model_work import EAGER, Computed
from llmops_kernel.train.measure.step_flops import Flops, StepFlops
from llmops_kernel.train.measure.step_timer import StepCounts
from tests.train.measure.families import build, executed, with_lora

TOKENS, SQUARES = 512, 512**2
COUNTS = StepCounts(
    TOKENS,
    SQUARES,
    logit_tokens=TOKENS,
    stop=False,
    computed=Computed(TOKENS, TOKENS, masked_squares=0, plain_squares=SQUARES),
)


class Mixing(nn.Module):
    """A multiplication that nobody has named: a bare weight, used `times` times."""

    def __init__(self, inner: nn.Module, times: int) -> None:
        super().__init__()
        self.inner, self.times = inner, times
        self.mixing = nn.Parameter(torch.empty(64, 64, device="meta"))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            hidden = hidden @ self.mixing
        result: torch.Tensor = self.inner(hidden)
        return result


class Correlating(nn.Module):
    """A product of activations with each other, which has no weight at all."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(hidden @ (hidden.transpose(-1, -2) @ hidden))
        return result


def unnamed(wrap: Any) -> Any:
    """A model type that no table knows, with unusual layers."""
    model = build("llama", num_hidden_layers=3)
    kind = type("UnheardForCausalLM", (LlamaForCausalLM,), {})
    model.__class__ = kind
    model.config.model_type = "unheard"
    for layer in model.model.layers:
        layer.mlp = wrap(layer.mlp)
    return model


@pytest.mark.parametrize("adapt", [lambda model: model, with_lora], ids=["full", "lora"])
def test_a_known_family_is_counted_at_once_and_checked_later(adapt: Any, tmp_path: Path) -> None:
    """Alike, also where logits are computed of a few tokens only."""
    model = adapt(build("llama"))
    flops = StepFlops(model, kernels=EAGER, cache=tmp_path)
    some = replace(COUNTS, logit_tokens=100)
    of_some = flops(some).required
    at_once = flops(COUNTS)
    assert flops.check() is None
    checked = flops(COUNTS)
    assert at_once == Flops(required=checked.required)
    assert of_some == flops(some).required
    assert (of_some or 0) < (checked.required or 0)
    assert checked.executed == executed(model, TOKENS)
    assert (checked.palm or 0) > (checked.required or 0) > 0


def test_a_method_of_its_own_is_a_dash_until_it_is_checked(tmp_path: Path) -> None:
    flops = StepFlops(with_lora(build("falcon")), cache=tmp_path)
    assert flops(COUNTS) == Flops()
    assert flops.check() is None
    assert (flops(COUNTS).required or 0) > 0


def test_weights_that_zero3_has_sharded_count_whole(tmp_path: Path) -> None:
    """It leaves an empty tensor in a weight's place, with the whole one's shape beside it."""
    model = with_lora(build("llama", device="cpu"))
    whole = StepFlops(model, cache=tmp_path / "whole")
    for one in model.parameters():
        one.ds_shape, one.ds_numel = one.shape, one.numel()
        one.data = torch.empty(0)
    sharded = StepFlops(model, cache=tmp_path / "sharded")
    some = replace(COUNTS, logit_tokens=100)
    assert (sharded(some).required or 0) > 0
    assert sharded(some) == whole(some)
    assert (sharded.check(), whole.check()) == (None, None)
    assert sharded(some) == whole(some)
    assert sharded(some).palm is not None


def test_the_next_run_knows_it_from_the_first_step(tmp_path: Path) -> None:
    first = StepFlops(with_lora(build("gpt_neox")), cache=tmp_path)
    first.check()
    second = StepFlops(with_lora(build("gpt_neox")), cache=tmp_path)
    assert second(COUNTS) == first(COUNTS)
    other = StepFlops(with_lora(build("gpt_neox"), ["dense"]), cache=tmp_path)
    assert other(COUNTS) == Flops()
    options: dict[str, Any] = {"kernels": EAGER, "cache": tmp_path}
    checkpointed = StepFlops(with_lora(build("gpt_neox")), checkpointing=True, **options)
    assert checkpointed(COUNTS) == Flops()
    checkpointed.check()
    more = checkpointed(COUNTS)
    assert more.required == first(COUNTS).required
    once = StepFlops(with_lora(build("gpt_neox")), **options)(COUNTS)
    assert (more.executed or 0) > 1.2 * (once.executed or 0)


def test_what_an_unknown_kernel_executes_is_a_dash(tmp_path: Path) -> None:
    flops = StepFlops(build("llama"), cache=tmp_path)
    flops.check()
    assert (flops(COUNTS).required or 0) > 0
    assert flops(COUNTS).executed is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"attention": [{"depth": 1}]}', "null"])
def test_a_damaged_count_is_made_again(tmp_path: Path, content: str) -> None:
    StepFlops(build("llama"), cache=tmp_path).check()
    [file] = (tmp_path / "flops").iterdir()
    file.write_text(content)
    flops = StepFlops(build("llama"), cache=tmp_path)
    assert flops.check() is None
    assert flops(COUNTS).palm is not None


def test_a_model_type_that_nobody_has_named_is_right(tmp_path: Path) -> None:
    model = unnamed(lambda inner: Mixing(inner, 1))
    flops = StepFlops(model, cache=tmp_path)
    assert flops(COUNTS) == Flops()
    assert flops.check() is None
    # Attention is counted to earlier tokens only, by PyTorch over the full square.
    attention = 3 * 3 * 2 * 64 * SQUARES
    expected = executed(model, TOKENS) - attention
    assert flops(COUNTS).required == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(
    "wrap",
    [lambda inner: Mixing(inner, 0), lambda inner: Mixing(inner, 3), Correlating],
    ids=["unused", "thrice", "correlating"],
)
def test_or_it_is_a_dash_with_both_numbers(wrap: Any, tmp_path: Path) -> None:
    flops = StepFlops(unnamed(wrap), cache=tmp_path)
    warning = flops.check()
    assert warning is not None
    assert "GFLOPs for a sequence where PyTorch counts" in warning.message
    assert "dash" in warning.remedy
    assert flops(COUNTS) == Flops()
    assert not (tmp_path / "flops").exists()


def test_a_model_that_cannot_run_on_meta_is_a_dash_that_says_why(tmp_path: Path) -> None:
    class Choosing(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(hidden) if hidden.sum() > 0 else hidden
            return result

    flops = StepFlops(unnamed(Choosing), cache=tmp_path)
    warning = flops.check()
    assert warning is not None
    assert "meta" in warning.message
    assert flops(COUNTS) == Flops()


def test_modules_without_a_config_are_a_dash(tmp_path: Path) -> None:
    flops = StepFlops(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4)), cache=tmp_path)
    warning = flops.check()
    assert warning is not None
    assert flops(COUNTS) == Flops()
