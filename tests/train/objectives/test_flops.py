"""What is multiplied in a step: passes without gradients, and models without a head of words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.train.measure.step_flops import StepFlops
from llmops_kernel.train.measure.step_timer import StepCounts
from tests.train.objectives.truths import Truth

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
