"""Each objective on two workers with each strategy: the losses of one; after a stop and a kill."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.strategy_pairs import Pairs
from tests.train.test_killed_workers import HOOKS
from tests.train.test_killed_workers import losses as losses_of
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
    "reward": ({"type": "reward"}, "pairs", "lora"),
    "classify": ({"type": "classify"}, "labels", "full"),
    "regress": ({"type": "regress"}, "numbers", "lora"),
    "embed": ({"type": "embed", "dimensions": [16]}, "queries", "lora"),
    "embed, all weights": ({"type": "embed", "mini_batch_size": 5}, "queries", "full"),
    "dpo, qlora": ({"type": "dpo"}, "pairs", "qlora"),
    "reward, qlora": ({"type": "reward"}, "pairs", "qlora"),
    "embed, qlora": ({"type": "embed"}, "queries", "qlora"),
}


def config_of(
    training: Training, name: str, strategy: str, *, workers: int, **sections: Any
) -> Any:
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
        **sections,
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
    for strategy in ("ddp", "zero2") if "qlora" in name else STRATEGIES:
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


@pytest.mark.parametrize("name", ["dpo, all weights", "classify", "embed"])
def test_a_run_whose_worker_was_killed_goes_on_with_the_losses_of_one_left_alone(
    pairs: Pairs, training: Training, folder: Path, tmp_path: Path, name: str
) -> None:
    alone = losses(run(config_of(training, name, "ddp", workers=1), tmp_path / "alone", folder))
    workspace = shutil.copytree(folder, tmp_path / "workspace")
    (workspace / "kill.py").write_text(HOOKS.replace("global_step == 9", "global_step == 5"))
    config = config_of(
        training, name, "ddp", workers=2, hooks="kill.py", checkpoint={"every_steps": 3}
    )
    killed = pairs.run(config, tmp_path / "run", workspace)
    assert killed[1] == -signal.SIGKILL
    assert killed[0] != 0
    again = pairs.run(config, tmp_path / "run", workspace, attempt=2)
    assert again == [0, 0], (tmp_path / "run" / "0.log").read_text()[-3000:]
    rest = losses_of(tmp_path / "run", attempt=2)
    assert list(rest) == [4, 5, 6]
    assert rest == pytest.approx({step: alone[step] for step in rest}, abs=TOLERANCE)
