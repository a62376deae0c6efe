"""The load of experts, worked out by hand."""

from __future__ import annotations

import pytest

from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST, expert_load


@pytest.mark.parametrize(
    ("layers", "load", "worst", "idle"),
    [
        ([[5, 5, 5, 5]], 1.0, 1.0, 0.0),
        # All tokens to the same two of eight: E / k.
        ([[7, 0, 7, 0, 0, 0, 0, 0]], 4.0, 4.0, 6 / 8),
        # 10 of 20 to one of four, and balanced: (2 + 1) / 2.
        ([[10, 4, 6, 0], [5, 5, 5, 5]], 1.5, 2.0, 1 / 8),
        # A layer without tokens was not counted; layers may differ in their number of experts.
        ([[0, 0], [3, 1, 2]], 1.5, 1.5, 0.0),
    ],
)
def test_load(layers: list[list[int]], load: float, worst: float, idle: float) -> None:
    expected = {LOAD: load, WORST: worst, IDLE: idle}
    assert expert_load(layers) == pytest.approx(expected)


@pytest.mark.parametrize("layers", [[], [[0, 0]], [[0], [0, 0, 0]]])
def test_nothing_counted_is_unknown(layers: list[list[int]]) -> None:
    assert expert_load(layers) == {}
