"""Rates over a window of growing counts."""

from __future__ import annotations

import pytest

from llmops_kernel.score.live import Rates, add_in_flight


def test_unknown_before_two_moments() -> None:
    rates = Rates()
    assert rates.per_second("rows") is None
    rates.add(0.0, {"rows": 0})
    assert rates.per_second("rows") is None
    rates.add(0.0, {"rows": 5})
    assert rates.per_second("rows") is None, "no time has passed"


def test_the_window_forgets_the_beginning() -> None:
    rates = Rates(window_s=10)
    for second in range(100):
        rates.add(float(second), {"rows": 0 if second < 50 else (second - 49) * 7})
    assert rates.per_second("rows") == pytest.approx(7)


def test_rows_that_are_done_again_are_no_negative_speed() -> None:
    rates = Rates()
    rates.add(0.0, {"rows": 100})
    rates.add(1.0, {"rows": 40})
    assert rates.per_second("rows") is None
    rates.add(2.0, {"rows": 50})
    assert rates.per_second("rows") == 10


def test_a_count_that_is_not_known_has_no_rate() -> None:
    rates = Rates()
    rates.add(0.0, {"rows": 0})
    rates.add(1.0, {"rows": 1, "output_tokens": 5})
    assert rates.per_second("output_tokens") is None


def test_rows_of_calls_that_the_engine_has_not_finished_are_done_too() -> None:
    one = {"rows": 64, "answered": 64, "prompt_tokens": 640, "output_tokens": 6400, "node": "n"}
    facts = {0: {"under_way": {"mine": [12, 120, 900], "of another run": [5, 5, 5]}}, 1: {}}
    found = add_in_flight({0: one, 1: one, 2: one}, facts, "mine")
    assert found[0] == {
        "rows": 76,
        "answered": 76,
        "prompt_tokens": 760,
        "output_tokens": 7300,
        "node": "n",
    }
    assert found[1] == found[2] == one  # An engine of an earlier version, one that did not answer.
