"""`performance: auto` against `off`: the same loss in each step, alone and with two workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]

TOLERANCE = 1e-4
"""Relative, after ten steps that each build on the one before: rounding, and nothing else."""
Config = Callable[..., Any]


@pytest.fixture
def uneven(workspace: Path) -> Path:
    """A workspace whose rows differ a lot in length, so that the order of rows matters."""
    rows = [
        {"prompt": f"what is {i}?" * (1 + i % 5), "completion": f"it is {i}." * (1 + i % 3)}
        for i in range(50)
    ]
    (workspace / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workspace / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:7]))
    return workspace


def uneven_config(make_config: Config, mode: str, **sections: Any) -> Any:
    base: dict[str, Any] = {
        "data": {"train": "train.jsonl", "eval": "eval.jsonl"},
        "training": {"micro_batch_size": 2, "global_batch_size": 8, "max_steps": 10},
        "optimizer": {"learning_rate": 1e-3},
        "evaluation": {"every_steps": 5},
        "performance": mode,
    }
    return make_config(**base, **sections)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "full", "parallelism": {"gradient_checkpointing": True}},
        {"method": "lora", "model": "tiny-qwen2"},
    ],
    ids=["full", "lora"],
)
def test_one_worker_learns_the_same(
    make_config: Config, uneven: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    found = {}
    for mode in ("off", "auto"):
        events = run(uneven_config(make_config, mode, **settings), tmp_path / mode, uneven)
        start, *_ = of(events, "start")
        evals = [event.metrics["eval_loss"] for event in of(events, "eval")]
        found[mode] = [*losses(events).values(), *evals]
        tokens = [step.tokens for step in of(events, "step")]
        found[f"{mode} tokens"] = tokens
        assert ("logits at labels only" in start.performance) == (mode == "auto")
        assert ("rows of like length" in start.performance) == (mode == "auto")
    assert len(found["auto"]) == 12
    assert found["auto"] == pytest.approx(found["off"], rel=TOLERANCE)
    assert found["auto tokens"] == found["off tokens"]


@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_two_workers_learn_the_same(
    pairs: Pairs, make_config: Config, uneven: Path, tmp_path: Path, strategy: str
) -> None:
    found = {}
    for mode in ("off", "auto"):
        config = uneven_config(
            make_config, mode, parallelism={"strategy": strategy, "num_workers": 2}
        )
        _, found[mode] = pairs.train(config, tmp_path / mode, uneven)
    assert len(found["auto"]) == 10
    assert found["auto"] == pytest.approx(found["off"], rel=TOLERANCE)


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_sees_the_same_rows(
    make_config: Config, uneven: Path, tmp_path: Path
) -> None:
    whole = uneven_config(make_config, "auto", method="full")
    expected = losses(run(whole, tmp_path / "whole", uneven))
    run(whole, tmp_path / "parts", uneven, stop_at=4)
    rest = losses(run(whole, tmp_path / "parts", uneven))
    assert rest
    assert min(rest) > 1
    assert rest == pytest.approx({step: expected[step] for step in rest}, rel=TOLERANCE)


def test_a_model_of_ones_own_computes_all_logits(
    make_config: Config, uneven: Path, tmp_path: Path
) -> None:
    (uneven / "hooks.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Own(LlamaForCausalLM): pass\n"
        "def build_model(config):\n"
        "    return Own(LlamaConfig(vocab_size=300, hidden_size=16, intermediate_size=16,\n"
        "        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))\n"
    )
    auto = make_config(method="full", hooks="hooks.py", training={"max_steps": 2})
    start, *_ = of(run(auto, tmp_path / "auto", uneven), "start")
    assert "logits of all tokens (Own is not a model of Transformers)" in start.performance
