"""Objectives on a GPU, in bfloat16: they begin with the loss of a CPU, and learn.

Never run on a GPU yet. That the configs are valid is tested anywhere (`test_cases.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.trained import GPUS, sections, trained
from tests.train.objectives.conftest import ROWS
from tests.train.test_loop import losses, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
DDP = {"strategy": "ddp"}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "dpo": ({"objective": "dpo", "method": "lora", "parallelism": DDP}, "pairs"),
    "dpo, zero3": (
        {"objective": "dpo", "method": "full", "parallelism": {"strategy": "zero3"}},
        "pairs",
    ),
    "kto": ({"objective": "kto", "method": "lora", "parallelism": DDP}, "rated"),
    "reward, qlora": ({"objective": "reward", "method": "qlora", "parallelism": DDP}, "pairs"),
    "classify": ({"objective": "classify", "method": "lora", "parallelism": DDP}, "labels"),
    "embed": ({"objective": "embed", "method": "lora", "parallelism": DDP}, "queries"),
    "embed, in parts": (
        {
            "objective": {"type": "embed", "mini_batch_size": 2},
            "method": "full",
            "parallelism": {"strategy": "zero2"},
        },
        "queries",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_begins_with_the_loss_of_a_cpu_and_learns(name: str, tmp_path: Path) -> None:
    config, rows = CASES[name]
    events = trained(config, tmp_path, rows=[ROWS[rows](number) for number in range(96)])
    mine = [*losses(events).values()]
    assert mine[-1] < mine[0]
    last = [event for event in events if event.kind == "step"][-1]
    assert last.peak_memory_bytes
    if config["method"] != "qlora" and GPUS == 1:  # Others share batches, or have other weights.
        alone = sections({**config, "parallelism": DDP, "model": {"dtype": "float32"}}, workers=1)
        theirs = losses(run(alone, tmp_path / "cpu", tmp_path))
        assert mine[0] == pytest.approx(theirs[1], rel=0.05)
