"""The paired bootstrap: coverage on synthetic data, and the normal approximation of many rows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from llmops_kernel.metrics.bootstrap import mean_difference, ratio_of_sums


def test_about_95_of_100_intervals_hold_the_truth() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for trial in range(300):
        before = random.normal(0.5, 0.2, 80)
        after = before + random.exponential(0.1, 80)  # skewed; the true difference is 0.1
        found = mean_difference(before, after, seed=trial)
        assert found is not None
        inside += found.low <= 0.1 <= found.high
    # 95 % of 300 is 285; four standard deviations are 15, and skew costs some coverage at n = 80.
    assert 265 <= inside <= 300


@pytest.mark.parametrize("kind", ["few distinct values", "all distinct"])
def test_many_rows_give_the_normal_interval(kind: str) -> None:
    random = np.random.default_rng(2)
    before = random.random(20_000)
    after = random.random(20_000)
    if kind == "few distinct values":
        before, after = (before < 0.5).astype(float), (after < 0.6).astype(float)
    found = mean_difference(before, after)
    assert found is not None
    difference = after - before
    half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    assert found.value == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.15 * half)


def test_pairing_makes_it_narrow() -> None:
    before = np.random.default_rng(3).random(500)
    found = mean_difference(before, before + 0.01)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.01, 0.01))


def test_the_same_seed_gives_the_same_numbers() -> None:
    before, after = np.random.default_rng(4).random((2, 50))
    assert mean_difference(before, after, seed=7) == mean_difference(before, after, seed=7)
    assert mean_difference(before, after, seed=7) != mean_difference(before, after, seed=8)


def test_no_row_has_no_interval_and_one_row_is_a_point() -> None:
    assert mean_difference(np.array([]), np.array([])) is None
    found = mean_difference(np.array([0.0]), np.array([0.5]))
    assert found is not None
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_unknown_numbers_have_no_interval() -> None:
    assert mean_difference(np.array([0.0, np.nan]), np.array([1.0, 1.0])) is None


def test_a_ratio_of_sums_is_of_tokens_not_of_rows() -> None:
    columns = np.array([[1.0, 1.0], [9.0, 3.0]])
    found = ratio_of_sums(columns, lambda sums, _: sums[:, 0] / sums[:, 1])
    assert found is not None
    assert found.value == pytest.approx(2.5)
    assert (found.low, found.high) == pytest.approx((1.0, 3.0))


def test_a_million_rows_take_seconds() -> None:
    before, after = np.random.default_rng(5).random((2, 1_000_000))
    began = time.process_time()
    found = mean_difference(before, after)
    assert found is not None
    assert found.low < after.mean() - before.mean() < found.high
    assert time.process_time() - began < 60  # measured 1 s
