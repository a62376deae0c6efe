"""The user's metrics: numbers only, errors that name the hook, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from llmops_kernel.errors import HookError
from llmops_kernel.score.evaluate.hooks import MAX_ROWS, compute_metrics, user_metrics


def test_numbers_of_any_library_are_taken() -> None:
    def score_row(prediction: str, reference: str | None, row: Any) -> dict[str, Any]:
        return {"same": prediction == reference, "length": np.int64(len(row["x"])), "none": None}

    assert user_metrics(score_row, "a", "a", {"x": "abc"}) == {
        "same": 1.0,
        "length": 3.0,
        "none": None,
    }


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returned a NoneType"),
        ({"x": float("nan")}, "nan for 'x'"),
        ({"x": float("inf")}, "inf for 'x'"),
        ({"x": "0.5"}, "'0.5' for 'x'"),
        ({"x": [1]}, "not a finite number"),
        ({1: 0.5}, "names a metric 1"),
        ({"exact_match": 1.0}, "computes already"),
    ],
)
def test_unusable_results_are_refused(result: Any, message: str) -> None:
    with pytest.raises(HookError, match=message) as raised:
        user_metrics(lambda *_: result, "a", "b", {}, reserved={"exact_match": 1.0})
    assert "score_row" in raised.value.message
    assert raised.value.remedy


def test_an_error_names_the_hook_and_the_line() -> None:
    def score_row(prediction: str, reference: str | None, row: Any) -> dict[str, float]:
        return {"x": row["missing"]}

    with pytest.raises(HookError, match="score_row raised KeyError") as raised:
        user_metrics(score_row, "a", "b", {})
    assert "test_hooks.py:" in raised.value.remedy


def test_all_rows_at_the_end() -> None:
    def metric(predictions: list[str], references: list[Any], rows: list[Any]) -> dict[str, float]:
        hits = sum(a == b for a, b in zip(predictions, references, strict=True))
        return {"accuracy": hits / len(rows)}

    rows = [("a", "a", {}), ("b", "c", {})]
    assert compute_metrics(metric, rows, num_rows=2).values == {"accuracy": 0.5}
    assert compute_metrics(metric, [], num_rows=0).values == {}


def test_more_rows_than_memory_is_for_are_not_even_read() -> None:
    def rows() -> Iterator[Any]:
        raise AssertionError("read")
        yield

    result = compute_metrics(lambda *_: {"x": 1.0}, rows(), num_rows=MAX_ROWS + 1)
    assert result.values == {}
    assert "200,001 rows" in result.warning
    assert "score_row" in result.warning
