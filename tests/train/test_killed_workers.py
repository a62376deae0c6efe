"""A killed worker of two, and a second pair that resumes: the same losses, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.journal import FolderTail
from tests.train.strategy_pairs import Pairs

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

HOOKS = """
import os, signal
from pathlib import Path
from transformers import TrainerCallback

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        marker = Path(__file__).with_name("was-killed")
        if state.global_step == 9 and os.environ["RANK"] == "1" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks():
    return [Kill()]
"""


def losses(folder: Path, attempt: int) -> dict[int, float]:
    events = FolderTail(folder / "journal").read()
    steps = [event for event in events if isinstance(event, StepEvent)]
    return {one.step: one.loss or 0.0 for one in steps if one.attempt == attempt}


@pytest.mark.parametrize(
    ("method", "parallelism"),
    [
        ("full", {"strategy": "zero3", "offload_optimizer": "cpu", "offload_params": True}),
        ("full", {"strategy": "fsdp"}),
        ("qlora", {"strategy": "ddp"}),
    ],
    ids=["full-zero3-offload", "full-fsdp", "qlora-ddp"],
)
def test_a_run_whose_worker_was_killed_resumes_with_weights_and_optimizer(
    pairs: Pairs,
    make_config: Callable[..., Any],
    workspace: Path,
    tmp_path: Path,
    method: str,
    parallelism: dict[str, Any],
) -> None:
    (workspace / "hooks.py").write_text(HOOKS)
    config = make_config(
        method=method,
        hooks="hooks.py",
        parallelism={**parallelism, "num_workers": 2},
        training={"max_steps": 12},
        optimizer={"learning_rate": 2e-3},
        checkpoint={"every_steps": 6},
    )
    folder = tmp_path / "run"
    first, second = (
        pairs.run(config, folder, workspace),
        pairs.run(config, folder, workspace, attempt=2),
    )
    assert first[1] == -9
    assert first[0] != 0
    assert second == [0, 0], (folder / "0.log").read_text()[-3000:]
    before, after = losses(folder, 1), losses(folder, 2)
    assert list(after) == [7, 8, 9, 10, 11, 12]
    # Steps 7 to 9 were trained twice: from memory, and from what the checkpoint has.
    for step in (7, 8):
        assert after[step] == pytest.approx(before[step], abs=1e-3)
