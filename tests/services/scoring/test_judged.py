"""Two judged runs are compared by the grades of their rows."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.errors import ComparisonError
from llmops_kernel.services.comparison import compare_outputs
from llmops_kernel.store.store import RunStore
from tests.services.scoring.outputs import scored, scored_run

JUDGE: dict[str, Any] = {"model": "m", "rubric": "{output}", "choices": ["good", "fair", "bad"]}
ROWS = [scored(number, "a", id=f"k{number}") for number in range(5)]
BEFORE = ["good", "bad", "fair", None, "bad"]
AFTER = ["bad", "good", "fair", "good", "fair"]


def add_both(store: RunStore, **second: Any) -> None:
    """The second run has the rows in another order, and its grades by its own numbers."""
    scored_run(store, "a", ROWS, created_s=1.0, key="id", judge=JUDGE, labels=BEFORE)
    more = {"judge": JUDGE, "labels": AFTER[::-1]} | second
    rows = [row | {"row_number": number} for number, row in enumerate(ROWS[::-1])]
    scored_run(store, "b", rows, created_s=2.0, key="id", **more)


def test_rows_got_better_and_worse_by_their_grades(store: RunStore) -> None:
    add_both(store)
    compared = compare_outputs(store, ["a", "b"])
    [change] = [one for one in compared.metrics if one.name == "judge"]
    assert (change.rows, change.before, change.after) == (4, 0.375, 0.5)
    assert (change.num_better, change.num_worse, change.num_same) == (2, 1, 1)
    assert compared.metric == "judge"
    assert [row.key for row in compared.rows("better").rows] == ["k1", "k4"]
    [worse] = compared.rows("worse", metric="judge").rows
    assert (worse.key, worse.before_metrics, worse.after_metrics) == (
        "k0",
        {"judge": 1.0},
        {"judge": 0.0},
    )
    frame = compared.frame("all").set_index("key")
    assert frame.before_judge.isna().to_dict() == {f"k{n}": n == 3 for n in range(5)}


def test_grades_of_another_rubric_are_not_compared(store: RunStore) -> None:
    add_both(store, judge={**JUDGE, "rubric": "Is it short? {output}"})
    assert "judge" not in compare_outputs(store, ["a", "b"]).metric_names


def test_a_run_without_its_grades_has_no_such_metric(store: RunStore) -> None:
    add_both(store, labels=())
    assert "judge" not in compare_outputs(store, ["a", "b"]).metric_names


def test_broken_grades_have_a_remedy(store: RunStore) -> None:
    add_both(store)
    [first, *_] = sorted(store.folder("a").output.glob("_judge/part-*"))
    first.write_bytes(b"no parquet")
    with pytest.raises(ComparisonError, match="grades of a cannot be read") as raised:
        compare_outputs(store, ["a", "b"])
    assert "llmops retry" in raised.value.remedy
