"""Two scorings in the browser: metrics, and rows page by page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run
from tests.services.scoring.outputs import scored, scored_run

Ask = Callable[[str], Awaitable[tuple[int, Any]]]
OLD = [scored(i, f"old {i}", metric_exact_match=0.0) for i in range(5)]
NEW = [scored(i, f"new {i}", metric_exact_match=float(i % 2)) for i in range(5)]


@pytest.fixture
def store(home: Path) -> RunStore:
    store = RunStore()
    scored_run(store, "s-1", OLD, created_s=1.0)
    scored_run(store, "s-2", NEW, created_s=2.0)
    return store


@pytest.fixture
def ask(store: RunStore, api: Any) -> Ask:
    async def get(url: str) -> tuple[int, Any]:
        answer = await api(url)
        return answer.code, json.loads(answer.body)

    return get


async def test_metrics_and_counts(ask: Ask) -> None:
    code, found = await ask("compare/scores?runs=s-2,s-1")
    assert code == 200
    assert (found["before"], found["after"], found["metric"]) == ("s-1", "s-2", "exact_match")
    metric = found["metrics"][0]
    assert (metric["before"], metric["after"], metric["rows"]) == (0.0, 0.4, 5)
    assert metric["low"] <= 0.4 <= metric["high"]
    assert metric["texts"][:4] == ["exact_match", "0", "0.4", "+0.4"]
    counts = {one["kind"]: one["rows"] for one in found["counts"]}
    assert (counts["better"], counts["flipped"], counts["worse"]) == (2, 2, 0)
    assert found["identical"] == 0.0


async def test_a_page_of_flipped_rows(ask: Ask) -> None:
    code, page = await ask("compare/rows?runs=s-1,s-2&kind=flipped&offset=1&limit=1")
    assert code == 200
    assert (page["total"], page["offset"], page["kind"]) == (2, 1, "flipped")
    assert page["rows"] == [
        {
            "key": "3",
            "prompt": "prompt 3",
            "reference": "reference 3",
            "before": "old 3",
            "after": "new 3",
            "before_error": "",
            "after_error": "",
            "before_metrics": {"exact_match": 0.0},
            "after_metrics": {"exact_match": 1.0},
            "is_cut": False,
        }
    ]


async def test_a_very_long_text_is_cut_and_says_so(ask: Ask, store: RunStore) -> None:
    scored_run(store, "s-3", [scored(0, "x" * 50_000)], created_s=3.0)
    _, page = await ask("compare/rows?runs=s-1,s-3")
    assert len(page["rows"][0]["after"]) == 20_000
    assert page["rows"][0]["is_cut"] is True


async def test_a_comparison_says_whether_it_has_rows(ask: Ask, store: RunStore) -> None:
    make_run(store, "t-1", steps=1)
    make_run(store, "t-2", steps=1)
    assert (await ask("compare?runs=s-1,s-2"))[1]["has_rows"] is True
    assert (await ask("compare?runs=t-1,t-2"))[1]["has_rows"] is False


async def test_an_unfinished_scoring_is_reported_with_its_rows(ask: Ask, store: RunStore) -> None:
    scored_run(store, "s-3", NEW, success=False)
    code, reported = await ask("compare/rows?runs=s-1,s-3")
    assert code == 422
    assert "has 5 rows and no _SUCCESS" in reported["message"]
    assert "llmops retry" in reported["remedy"]


async def test_a_deleted_run_is_not_answered_from_memory(ask: Ask, store: RunStore) -> None:
    assert (await ask("compare/scores?runs=s-1,s-2"))[0] == 200
    store.delete("s-2")
    assert (await ask("compare/scores?runs=s-1,s-2"))[0] == 404


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("compare/rows", 400),
        ("compare/rows?runs=s-1", 422),
        ("compare/scores?runs=s-1,s-2,s-3", 422),
        ("compare/rows?runs=s-1,s-2&kind=nicer", 422),
        ("compare/rows?runs=s-1,s-2&metric=nicer", 422),
        ("compare/rows?runs=s-1,s-2&limit=0", 422),
        ("compare/rows?runs=s-1,s-2&limit=201", 422),
        ("compare/rows?runs=s-1,s-2&limit=x", 400),
        ("compare/rows?runs=s-1,s-2&offset=-1", 422),
        ("compare/rows?runs=s-1,nobody", 404),
        ("compare/scores?runs=s-1,s-1", 422),
    ],
)
async def test_bad_questions(query: str, code: int, ask: Ask) -> None:
    found, reported = await ask(query)
    assert (found, bool(reported["message"])) == (code, True)
