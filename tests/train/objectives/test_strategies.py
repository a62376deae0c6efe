"""Each objective on two workers with each strategy: the losses of one worker; and after a stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import losses, of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]

Training = Callable[..., Any]
TOLERANCE = 1e-3
STEPS = 6
STRATEGIES = ("ddp", "fsdp", "zero2", "zero3")
OBJECTIVES: dict[str, tuple[dict[str, Any], str, str]] = {
    "dpo": ({"type": "dpo"}, "pairs", "lora"),
    "dpo, all weights": ({"type": "dpo"}, "pairs", "full"),
    "orpo": ({"type": "orpo"}, "pairs", "lora"),
    "simpo": ({"type": "simpo"}, "pairs", "full"),
    "kto": ({"type": "kto"}, "rated", "lora"),
    "distill": ({"type": "distill", "hard_weight": 0.5}, "taught", "lora"),
    "distill, all weights": ({"type": "distill", "divergence": "reverse"}, "taught", "full"),
    "reward": ({"type": "reward"}, "pairs", "lora"),
    "classify": ({"type": "classify"}, "labels", "full"),
    "regress": ({"type": "regress"}, "numbers", "lora"),
    "embed": ({"type": "embed", "dimensions": [16]}, "queries", "lora"),
    "embed, all weights": ({"type": "embed", "mini_batch_size": 5}, "queries", "full"),
}


def config_of(training: Training, name: str, strategy: str, *, workers: int) -> Any:
    objective, rows, method = OBJECTIVES[name]
    micro = 8 // workers
    return training(
        objective,
        rows,
        method=method,
        parallelism={"strategy": strategy, "num_workers": workers},
        training={"micro_batch_size": micro, "global_batch_size": 8, "max_steps": STEPS},
        data={"eval": f"{rows}.jsonl", "max_eval_rows": 5},
        evaluation={"micro_batch_size": 1},
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_workers_train_as_one(
    pairs: Pairs, training: Training, folder: Path, tmp_path: Path, name: str
) -> None:
    alone = run(config_of(training, name, "ddp", workers=1), tmp_path / "one", folder)
    expected = list(losses(alone).values())
    assert len(expected) == STEPS
    metrics = of(alone, "eval")[-1].metrics
    if name == "kto":  # Answers are compared with those of the same worker.
        expected, metrics = [], {}
    for strategy in STRATEGIES:
        config = config_of(training, name, strategy, workers=2)
        events = pairs.events(config, tmp_path / strategy, folder)
        actual = list(losses(events).values())
        expected, metrics = expected or actual, metrics or of(events, "eval")[-1].metrics
        worst = max(abs(a - b) for a, b in zip(actual, expected, strict=True))
        print(f"{name}, {strategy}: largest difference {worst:.2e}")
        assert worst < TOLERANCE, strategy
        assert of(events, "eval")[-1].metrics == pytest.approx(metrics, abs=0.02), strategy
        assert (tmp_path / strategy / "output" / "config.train.yaml").exists()


@pytest.mark.parametrize("name", ["dpo, all weights", "classify", "embed"])
def test_a_stopped_run_goes_on_where_it_was(
    training: Training, folder: Path, tmp_path: Path, name: str
) -> None:
    config = config_of(training, name, "ddp", workers=1)
    whole = losses(run(config, tmp_path / "whole", folder))
    first = losses(run(config, tmp_path / "two", folder, stop_at=3))
    rest = losses(run(config, tmp_path / "two", folder))
    assert min(rest) == max(first) + 1
    assert {**first, **rest} == pytest.approx(whole, abs=1e-5)
