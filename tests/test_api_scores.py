"""`llmops.compare` of two scorings: text, HTML and DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ComparisonError
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.score_comparison import html_of
from tests.server.runs import make_run
from tests.services.scoring.outputs import scored, scored_run

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    store = RunStore()
    old = [scored(i, "old", metric_exact_match=0.0, metric_rouge1=0.5) for i in range(4)]
    new = [scored(i, EVIL, metric_exact_match=1.0, metric_rouge1=i / 4) for i in range(4)]
    scored_run(store, "s-1", old, created_s=1.0)
    scored_run(store, "s-2", new, created_s=2.0)
    return store


@pytest.mark.usefixtures("store")
def test_rows_are_a_table() -> None:
    frame = llmops.compare("s-2", "s-1").rows("worse", metric="rouge1")
    assert list(frame["key"]) == [0, 1]
    assert list(frame["before_rouge1"]) == [0.5, 0.5]
    assert list(frame["after_rouge1"]) == [0.0, 0.25]
    assert list(frame["before"]) == ["old", "old"]
    assert frame.attrs["total"] == 2


@pytest.mark.usefixtures("store")
def test_no_rows_are_a_table_with_its_columns() -> None:
    frame = llmops.compare("s-1", "s-2").rows("error")
    assert len(frame) == 0
    assert {"prompt", "before", "after_exact_match"} <= set(frame.columns)


def test_more_rows_than_a_page(store: RunStore) -> None:
    rows = [scored(i, metric_exact_match=1.0) for i in range(2500)]
    scored_run(store, "m-1", rows, created_s=1.0, part_rows=700)
    scored_run(store, "m-2", rows, created_s=2.0, part_rows=1000)
    compared = llmops.compare("m-1", "m-2")
    assert list(compared.rows("all", offset=100, limit=2300)["key"]) == list(range(100, 2400))
    assert len(compared.rows("all", limit=10_000)) == 2500
    assert len(compared.rows("all")) == 1000


@pytest.mark.usefixtures("store")
def test_text_has_metrics_and_counts() -> None:
    shown = repr(llmops.compare("s-1", "s-2"))
    assert "exact_match  0       1      +1" in shown
    assert "flipped               4" in shown


def test_html_is_escaped(store: RunStore) -> None:
    evil = {f"metric_{EVIL}": 1.0}
    scored_run(store, "e-1", [scored(0, **evil)], created_s=1.0)
    scored_run(store, "e-2", [scored(0, **evil)], created_s=2.0)
    compared = llmops.compare("e-1", "e-2")
    for html in (html_of(compared.scores), compared.rows("all")._repr_html_()):
        assert "&lt;script&gt;" in html
        assert "<script" not in html


def test_an_unfinished_scoring_still_prints(store: RunStore) -> None:
    scored_run(store, "s-3", [scored(0)], created_s=3.0, success=False)
    compared = llmops.compare("s-1", "s-3")
    assert "s-3 has not finished" in compared.text()
    with pytest.raises(ComparisonError, match="1 row and no"):
        compared.rows()


def test_training_runs_have_no_rows(store: RunStore) -> None:
    make_run(store, "t-1", steps=2)
    make_run(store, "t-2", steps=2)
    compared = llmops.compare("t-1", "t-2")
    assert not compared.has_rows
    assert "Rows are" not in compared.text()
    with pytest.raises(ComparisonError, match="kind train"):
        compared.rows()
