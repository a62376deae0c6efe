"""Parts add up to the whole, in any grouping and through JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.score.evaluate.row_scorer import RowScores, Totals

ROW = st.builds(
    RowScores,
    values=st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(-9, 9).map(float)),
    bleu=st.none() | st.lists(st.integers(0, 9), min_size=10, max_size=10),
    logprob=st.none() | st.integers(-50, 0).map(float),
    tokens=st.integers(1, 20),
    confidence=st.none() | st.sampled_from([0.25, 0.5, 1.0]),
    is_correct=st.booleans(),
    outcome=st.sampled_from([None, "supported", "refused_rightly"]),
)


def summed(rows: list[RowScores | None]) -> Totals:
    totals = Totals()
    for row in rows:
        if row is None:
            totals.add_error()
        else:
            totals.add(row)
    return totals


@settings(deadline=None)
@given(st.lists(st.none() | ROW, max_size=12), st.integers(0, 12))
def test_two_parts_make_the_whole(rows: list[RowScores | None], at: int) -> None:
    first = Totals.from_json(json.loads(json.dumps(summed(rows[:at]).to_json(), allow_nan=False)))
    first.merge(summed(rows[at:]))
    whole = summed(rows)
    assert first == whole
    assert first.metrics() == whole.metrics()
    assert all(math.isfinite(value) for value in whole.metrics().values())
    assert whole.num_errors == rows.count(None)


def test_no_row_has_no_metric() -> None:
    assert Totals().metrics() == {}
    assert summed([None]).metrics() == {}
    assert summed([RowScores(values={"x": None})]).metrics() == {}


def test_a_mean_is_of_the_rows_that_have_the_metric() -> None:
    totals = summed([RowScores(values={"x": 1.0}), RowScores(values={"x": None}), None])
    assert totals.metrics() == {"x": 1.0}
    assert totals.rows_of() == {"x": 1}
    assert (totals.num_rows, totals.num_errors) == (3, 1)


def test_perplexity_is_of_all_tokens_not_of_rows() -> None:
    short = RowScores(values={"perplexity": 2.0}, logprob=math.log(0.5), tokens=1)
    long = RowScores(values={"perplexity": 8.0}, logprob=9 * math.log(0.125), tokens=9)
    expected = math.exp(-(math.log(0.5) + 9 * math.log(0.125)) / 10)
    assert summed([short, long]).metrics()["perplexity"] == pytest.approx(expected)


@pytest.mark.parametrize("logprob", [-math.inf, math.nan])
def test_an_impossible_row_leaves_no_perplexity(logprob: float) -> None:
    rows = [RowScores(values={"perplexity": 2.0}, logprob=-1.0, tokens=1)]
    rows.append(RowScores(values={"perplexity": None}, logprob=logprob, tokens=1))
    totals = summed(rows)
    assert "perplexity" not in totals.metrics()
    json.dumps(totals.to_json(), allow_nan=False)


def test_grounded_outcomes_are_shares() -> None:
    rows = [RowScores(outcome="supported")] * 3 + [RowScores(outcome="refused_wrongly")]
    metrics = summed(rows).metrics()
    assert metrics["grounded_supported"] == 0.75
    assert metrics["grounded_refused_wrongly"] == 0.25
    assert metrics["grounded_unsupported"] == 0.0


def test_calibration_becomes_ece_and_a_table() -> None:
    rows = [RowScores(confidence=0.8, is_correct=True), RowScores(confidence=0.8)]
    totals = summed(rows)
    assert totals.metrics() == {"ece": pytest.approx(0.3)}
    assert sum(int(row["rows"] or 0) for row in totals.reliability()) == 2
    assert Totals().reliability() == []


def test_a_users_metric_of_the_same_name_stays_a_mean() -> None:
    assert summed([RowScores(values={"bleu": 0.5, "ece": 0.25})]).metrics() == {
        "bleu": 0.5,
        "ece": 0.25,
    }
