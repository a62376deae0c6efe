"""How a comparison of two scorings is written."""

from __future__ import annotations

import pytest

from llmops_kernel.views.score_comparison import (
    MetricChange,
    RowsPage,
    ScoreDifference,
    Stability,
    count_lines,
    html_of,
    output_of,
    shown_of,
    signed,
    text_of,
)

EVIL = "<script>"
CLEAR = MetricChange(
    "exact_match", 0.25, 0.5, 0.25, 0.1, 0.4, rows=8, better="higher", num_better=2, num_worse=0
)
OF_TABLE = MetricChange(EVIL, 0.1, 0.3, 0.2)


def difference(stability: Stability) -> ScoreDifference:
    return ScoreDifference(
        before=f"old{EVIL}",
        after="new",
        metrics=(CLEAR, OF_TABLE),
        metric="exact_match",
        counts={"all": 8, "better": 2, "only_after": 1234},
        errors_before=0,
        errors_after=3,
        stability=stability,
    )


NOTHING = Stability(rows=0, identical=None, similarity=None, sampled=0)


def test_a_clear_change_leaves_out_zero() -> None:
    assert CLEAR.is_clear
    assert not OF_TABLE.is_clear
    assert not MetricChange("x", 0.0, 0.1, 0.1, -0.1, 0.3).is_clear


def test_unknown_is_a_dash() -> None:
    lines = dict(count_lines(difference(NOTHING)))
    assert (lines["identical outputs"], lines["mean similarity"]) == ("–", "–")
    line = next(line for line in text_of(difference(NOTHING)).splitlines() if EVIL in line[:8])
    assert line.split() == [EVIL, "0.1", "0.3", "+0.2", "–", "–", "–"]


def test_counts_name_the_metric_and_the_sample() -> None:
    lines = dict(count_lines(difference(Stability(8, 0.5, 0.75, 4))))
    assert lines["better (exact_match)"] == "2"
    assert lines["only in the second"] == "1,234"
    assert lines["errors"] == "0 before, 3 after"
    assert lines["identical outputs"] == "50.0 %"
    assert lines["mean similarity"] == "0.75 (from 4 of the outputs that differ)"


def test_html_is_escaped() -> None:
    html = html_of(difference(NOTHING))
    assert EVIL not in html
    assert html.count("&lt;script&gt;") == 2


@pytest.mark.parametrize(
    ("number", "text"), [(None, "–"), (0.0, "0"), (0.1234, "+0.123"), (-2.0, "-2")]
)
def test_signs(number: float | None, text: str) -> None:
    assert signed(number) == text


def test_pages_and_outputs_in_words() -> None:
    assert shown_of(RowsPage("flipped", None, 0, 0, ())) == "no rows: flipped"
    assert output_of("text", "") == "text"
    assert output_of("half a text", "cut") == "error: cut"
    assert output_of(None, "") == "–"
