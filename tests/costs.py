"""What a run costs on the tests' cluster, from when its drivers began and ended."""

from __future__ import annotations

import pytest

from llmops_kernel import Run
from llmops_kernel.config.models.section import Price

PRICE = Price(node_hour=36.0, currency="EUR")
"""A cent a second."""


def assert_costs_one_node(run: Run) -> None:
    """The cluster has one node, so a run costs it from each driver's start to its end."""
    held_s = 0.0
    for attempt in range(1, run.view.attempt + 1):
        begins = [span.begin_s for span in run.view.phases(attempt) if span.name == "driver"]
        end = run.view.end_of(attempt)
        assert end is not None
        held_s += end.time_s - min(begins)
    cost = run.view.cost
    assert cost.currency == "EUR"
    # The time of a process's start is known to a hundredth of a second.
    assert cost.money == pytest.approx(0.01 * held_s, abs=0.001)
