from __future__ import annotations

import math

import pytest

from llmops_kernel.metrics.flops import flops_per_second, mfu, possible


@pytest.mark.parametrize(
    ("flops", "time_s", "peak_flops"),
    [(1e12, 1.0, None), (None, 1.0, 1e12), (1e12, 0.0, 1e12), (1e12, 1.0, 0.0)],
)
def test_mfu_is_unknown_where_a_part_is(
    flops: float | None, time_s: float, peak_flops: float | None
) -> None:
    assert mfu(flops=flops, time_s=time_s, peak_flops=peak_flops) is None


def test_a_wrong_peak_shows_as_a_value_above_one_that_is_not_possible() -> None:
    value = mfu(flops=3e12, time_s=1, peak_flops=1e12)
    assert value == pytest.approx(3)
    assert possible(value) is None


@pytest.mark.parametrize("value", [0.0, 0.34, 1.0])
def test_a_possible_mfu_stays(value: float) -> None:
    assert possible(value) == value


@pytest.mark.parametrize("value", [None, -0.1, 1.0001, 6.58, math.nan, math.inf])
def test_an_impossible_mfu_is_unknown(value: float | None) -> None:
    assert possible(value) is None


def test_the_rate_needs_no_peak() -> None:
    assert flops_per_second(flops=3e12, time_s=2) == 1.5e12
    assert flops_per_second(flops=None, time_s=2) is None
    assert flops_per_second(flops=3e12, time_s=0) is None
