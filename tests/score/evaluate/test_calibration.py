"""Expected calibration error against a table worked out by hand and a plain second computation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.score.evaluate.calibration import (
    BINS,
    Bin,
    bin_of,
    expected_error,
    prediction,
    reliability,
)

ROWS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def binned(rows: list[tuple[float, bool]]) -> list[Bin]:
    bins = [Bin() for _ in range(BINS)]
    for confidence, correct in rows:
        one = bins[bin_of(confidence)]
        one.rows, one.confidence, one.correct = (
            one.rows + 1,
            one.confidence + confidence,
            one.correct + correct,
        )
    return bins


def test_by_hand() -> None:
    # 4 rows near 0.9 of which 3 are correct, 1 row at 0.5 that is wrong
    rows = [(0.91, True), (0.92, True), (0.90, False), (0.93, True), (0.5, False)]
    expected = 4 / 5 * abs(3 / 4 - (0.91 + 0.92 + 0.90 + 0.93) / 4) + 1 / 5 * 0.5
    assert expected_error(binned(rows)) == pytest.approx(expected)


@settings(deadline=None)
@given(ROWS)
def test_it_is_the_papers_sum(rows: list[tuple[float, bool]]) -> None:
    expected = 0.0
    for m in range(BINS):
        inside = [(p, c) for p, c in rows if bin_of(p) == m]
        if inside:
            accuracy = sum(c for _, c in inside) / len(inside)
            confidence = sum(p for p, _ in inside) / len(inside)
            expected += len(inside) / len(rows) * abs(accuracy - confidence)
    assert expected_error(binned(rows)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("confidence", "index"),
    [(0.0, 0), (1e-9, 0), (1 / 15, 0), (1 / 15 + 1e-9, 1), (0.5, 7), (0.999, 14), (1.0, 14)],
)
def test_bins_are_open_below_and_closed_above(confidence: float, index: int) -> None:
    assert bin_of(confidence) == index


def test_no_row_has_no_error() -> None:
    assert expected_error([Bin() for _ in range(BINS)]) is None


def test_the_table_has_a_dash_for_an_empty_bin() -> None:
    table = reliability(binned([(1.0, True)]))
    assert len(table) == BINS
    assert table[-1] == {"from": 14 / 15, "to": 1.0, "rows": 1, "confidence": 1.0, "accuracy": 1.0}
    assert table[0]["accuracy"] is None


@pytest.mark.parametrize("scores", [{}, {"a": float("nan"), "b": 0.5}, {"a": 1.5, "b": -0.5}])
def test_unusable_probabilities_predict_nothing(scores: dict[str, float]) -> None:
    assert prediction(scores) is None


def test_the_most_probable_choice_is_predicted() -> None:
    assert prediction({"a": 0.2, "b": 0.8}) == ("b", 0.8)
    assert prediction({"a": 1.0000001, "b": 0.0}) == ("a", 1.0)
