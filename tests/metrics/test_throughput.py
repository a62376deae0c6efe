from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.throughput import Window


def test_an_empty_window_knows_nothing() -> None:
    window = Window()
    assert window.step_time_s is None
    assert window.tokens_per_second is None
    assert window.flops_per_second is None
    assert window.mfu(peak_flops=1e12) is None
    assert window.eta_s(10) is None


def test_the_first_step_is_left_out() -> None:
    window = Window()
    window.add(time_s=60, tokens=100)
    assert len(window) == 0
    window.add(time_s=2, tokens=100)
    assert window.tokens_per_second == 50
    assert window.eta_s(3) == 6


def test_one_slow_step_does_not_move_the_median() -> None:
    window = Window(size=5, skip=0)
    for time_s in (1, 1, 30, 1, 1):
        window.add(time_s=time_s, tokens=10, flops=4e12)
    assert window.step_time_s == 1
    assert window.tokens_per_second == 10
    assert window.mfu(peak_flops=8e12, num_workers=1) == pytest.approx(0.5)


def test_only_the_last_steps_count() -> None:
    window = Window(size=3, skip=0)
    for time_s in (9, 9, 9, 1, 1, 1):
        window.add(time_s=time_s)
    assert window.step_time_s == 1


def test_unknown_flops_or_peak_give_no_mfu() -> None:
    window = Window(skip=0)
    window.add(time_s=1, flops=1e12)
    assert window.mfu(peak_flops=None) is None
    window.add(time_s=1, flops=None)
    assert window.flops_per_second is None
    assert window.mfu(peak_flops=1e12) is None


def test_nothing_left_takes_no_time() -> None:
    assert Window().eta_s(0) == 0


@given(times=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), steps=st.integers(1, 1000))
def test_eta_is_linear_and_within_the_seen_times(times: list[float], steps: int) -> None:
    window = Window(skip=0)
    for time_s in times:
        window.add(time_s=time_s)
    eta_s = window.eta_s(steps)
    assert eta_s is not None
    assert steps * min(times) <= eta_s * (1 + 1e-9)
    assert eta_s <= steps * max(times) * (1 + 1e-9)
