"""The parts of a step: they fill it, whatever is nested in what."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from llmops_kernel.train.measure.step_parts import StepParts, fixed_share


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nested_parts_are_counted_once():
    clock = Clock()
    parts = StepParts(clock=clock)
    clock.now = 1.0
    parts.enter("passes")
    clock.now = 3.0
    with parts.inside("communication"):
        clock.now = 7.0
    clock.now = 8.0
    parts.enter("optimizer")
    clock.now = 10.0
    assert parts.take() == pytest.approx(
        {"between": 1.0, "passes": 3.0, "communication": 4.0, "optimizer": 2.0}
    )
    clock.now = 11.0
    assert parts.take() == pytest.approx({"optimizer": 1.0})


class Network(nn.Module):
    """Ten times the work for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 256)
        self.layer = nn.Linear(256, 256)
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_ids, labels=None):
        hidden = self.embedding(input_ids)
        for _ in range(10):
            hidden = self.dropout(self.layer(hidden))
        return hidden


def test_a_large_micro_batch_has_a_small_fixed_share_and_nothing_changes():
    torch.manual_seed(0)
    network = Network()
    ids = torch.zeros(64, 128, dtype=torch.long)
    before = torch.get_rng_state()
    share = fixed_share(network, {"input_ids": ids, "labels": ids})
    assert share is not None
    assert 0 < share < 0.5
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("inputs", [{}, {"input_ids": torch.zeros(1, 1)}, {"pixels": 1}])
def test_what_cannot_be_asked_has_no_fixed_share(inputs):
    assert fixed_share(Network(), inputs) is None
