"""What is multiplied in a step: passes without gradients, and models without a head of words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.train.measure.step_flops import StepFlops
from llmops_kernel.train.measure.step_timer import StepCounts
from tests.train.conftest import PEAK_TFLOPS
from tests.train.objectives.truths import Truth
from tests.train.test_loop import of, run

Training = Callable[..., Any]
LENGTH = 300
COUNTS = StepCounts(LENGTH, LENGTH**2, LENGTH, stop=False)


def counted(model: Any, cache: Path, references: int = 0) -> Any:
    count = StepFlops(model, cache=cache, references=references)
    assert count.check() is None
    return count(COUNTS)


def executed(model: Any) -> float:
    """Return what PyTorch's counter sees of a forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    model.set_attn_implementation("eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.ones(1, LENGTH, dtype=torch.int64))
    return float(counter.get_total_flops())


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_reference_adds_a_forward_pass_without_adapter(
    training: Training, folder: Path, tmp_path: Path, method: str
) -> None:
    truth = Truth(training({"type": "dpo"}, "pairs", method=method), folder)
    model = truth.model()
    alone, both = (counted(model, tmp_path, number) for number in (0, 1))
    base = model.unload() if method == "lora" else model
    assert both.palm - alone.palm == pytest.approx(executed(base), rel=0.005)
    added = both.required - alone.required
    assert 0.5 * executed(base) < added < executed(base)  # Attention to earlier tokens only.


@pytest.mark.parametrize("objective", ["embed", "classify", "reward"])
def test_a_model_without_words_is_counted_without_their_head(
    training: Training, folder: Path, tmp_path: Path, objective: str
) -> None:
    rows = {"embed": "queries", "classify": "labels", "reward": "pairs"}[objective]
    model = Truth(training({"type": objective}, rows, method="full"), folder).model()
    assert counted(model, tmp_path).palm / 3 == pytest.approx(executed(model), rel=0.005)


COUNTING = """
from pathlib import Path
from torch.utils.flop_counter import FlopCounterMode
from transformers import TrainerCallback

class Count(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        self.counter = FlopCounterMode(display=False)
        self.counter.__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        self.counter.__exit__(None, None, None)
        name = f"counted-{args.process_index}.txt"
        with Path(__file__).with_name(name).open("a") as file:
            print(self.counter.get_total_flops(), file=file)

def callbacks():
    return [Count()]
"""
STEPS = {
    "dpo, adapter": ("dpo", "pairs", "lora"),
    "dpo, all weights": ("dpo", "pairs", "full"),
    "kto": ("kto", "rated", "lora"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS)
def test_what_a_step_executes_is_what_pytorch_counts_in_it(
    training: Training, folder: Path, tmp_path: Path, case: str
) -> None:
    objective, rows, method = STEPS[case]
    workspace = shutil.copytree(folder, tmp_path / "workspace")
    (workspace / "count_hooks.py").write_text(COUNTING)
    config = training(
        {"type": objective},
        rows,
        method=method,
        model={"id": "tiny-llama", "attention": "eager"},
        hooks="count_hooks.py",
        training={"max_steps": 4},
    )
    events = of(run(config, tmp_path / "run", workspace), "step")
    counted = [float(line) for line in (workspace / "counted-0.txt").read_text().split()]
    peak = float(PEAK_TFLOPS) * 1e12
    # The model's modules are counted after the first step.
    executed = [event.hfu * event.step_time_s * peak for event in events[1:]]
    print(case, [mine / theirs for mine, theirs in zip(executed, counted[1:], strict=True)])
    assert executed == pytest.approx(counted[1:], rel=1e-6)
