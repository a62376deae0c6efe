"""Optimizers, schedules, frozen weights: against PyTorch and Transformers themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from llmops_kernel.errors import ModelError
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Config = Callable[..., Any]
STATES = {"adamw": "float32", "adamw_8bit": "float32", "adafactor": "float32", "muon": "float32"}


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("method", ["full", "lora"])
def test_an_optimizer_trains_and_goes_on_from_its_states(
    make_config: Config, workspace: Path, tmp_path: Path, kind: str, method: str
) -> None:
    config = make_config(optimizer={"type": kind, "learning_rate": 3e-3}, method=method)
    whole = run(config, tmp_path / "whole", workspace)
    assert losses(whole)[6] < losses(whole)[1]
    first = losses(run(config, tmp_path / "two", workspace, stop_at=3))
    rest = losses(run(config, tmp_path / "two", workspace))
    assert {**first, **rest} == pytest.approx(losses(whole), abs=1e-4)


def test_muon_updates_matrices_as_pytorch_and_the_rest_by_adamw() -> None:
    from llmops_kernel.train.trainer import MuonWithAdamW

    def model() -> torch.nn.Module:
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6))

    mine, theirs = model(), model()
    optimizer = MuonWithAdamW(mine, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    matrix, *others = theirs.parameters()
    expected = [
        torch.optim.Muon([matrix], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1),
    ]
    inputs = torch.randn(5, 6)
    for _ in range(3):
        for each, optimizers in ((mine, [optimizer]), (theirs, expected)):
            each.zero_grad()
            (each(inputs) ** 3).sum().backward()
            for one in optimizers:
                one.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_schedule_is_stable_and_falls_at_the_end(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    config = make_config(
        optimizer={
            "lr_scheduler_type": "warmup_stable_decay",
            "warmup_steps": 2,
            "decay_share": 0.3,
            "learning_rate": 1.0,
        },
        training={"max_steps": 10, "on_nan": "continue"},
    )
    rates = [event.learning_rate for event in of(run(config, tmp_path / "run", workspace), "step")]
    assert rates[2:7] == [1.0] * 5
    assert rates[0] < rates[1] < 1
    assert 1 > rates[8] > rates[9]


@pytest.mark.parametrize("field", ["freeze", "train_only"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_frozen_weights_stay_as_they_are(
    make_config: Config,
    workspace: Path,
    tmp_path: Path,
    tiny_llama: Path,
    field: str,
    method: str,
) -> None:
    patterns = ["layers.0.*", "embed_tokens"] if method == "full" else ["layers.0.*"]
    config = make_config(method=method, training={field: patterns})
    events = run(config, tmp_path / "run", workspace)
    start = of(events, "start")[-1]
    assert 0 < start.num_trainable < start.num_params
    if method == "lora":
        return
    before = load_file(tiny_llama / "model.safetensors")
    after = load_file(tmp_path / "run" / "output" / "model.safetensors")
    named = {name for name in before if "layers.0." in name or "embed_tokens" in name}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert changed.isdisjoint(named) if field == "freeze" else changed <= named


@pytest.mark.parametrize("field", ["freeze", "train_only"])
def test_a_name_of_nothing_is_refused(
    make_config: Config, workspace: Path, tmp_path: Path, field: str
) -> None:
    config = make_config(method="full", training={field: ["layers.0.*", "embed_token_s"]})
    with pytest.raises(ModelError, match="embed_token_s") as raised:
        run(config, tmp_path / "run", workspace)
    assert "embed_tokens" in raised.value.remedy


def test_freezing_all_is_refused(make_config: Config, workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nothing would be trained"):
        run(make_config(training={"freeze": ["*"]}), tmp_path / "run", workspace)
