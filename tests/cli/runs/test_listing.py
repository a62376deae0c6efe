"""`llmops runs` with a filter, an order and columns of choice, and `llmops tag`."""

from __future__ import annotations

import csv
import json

import pytest

from llmops_kernel import api
from llmops_kernel.errors import QueryError
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import Llmops
from tests.services.run_table.stores import add


@pytest.fixture
def sweep(home) -> RunStore:
    store = RunStore()
    for number, (rate, r) in enumerate([(2e-3, 8), (2e-3, 16), (5e-4, 16)]):
        config = {"name": "menu", "optimizer": {"learning_rate": rate}, "method": {"r": r}}
        loss = 0.5 - number / 10
        add(store, f"menu-{number}", config=config, eval_loss=loss, created_s=float(number))
    return store


def shown(capsys) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(" menu-")]


def test_runs_are_named_by_what_differs(llmops: Llmops, sweep, capsys):
    assert llmops("runs") == 0
    out = capsys.readouterr().out
    assert [
        text for text in ("lr 2e-3 · r 8", "lr 2e-3 · r 16", "lr 5e-4") if text not in out
    ] == []


def test_filter_order_and_columns(llmops: Llmops, sweep, capsys):
    arguments = (
        "--where",
        "method.r > 8",
        "--sort",
        "eval_loss",
        "--columns",
        "method.r,eval_loss",
    )
    assert llmops("runs", *arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"run": "menu-2", "method.r": 16, "eval_loss": pytest.approx(0.3)},
        {"run": "menu-1", "method.r": 16, "eval_loss": pytest.approx(0.4)},
    ]
    assert llmops("runs", *arguments) == 0
    out = capsys.readouterr().out
    assert out.index("menu-2") < out.index("menu-1")
    assert "menu-0" not in out
    assert llmops("runs", "--where", "eval_loss > 9") == 0
    assert "No run matches." in capsys.readouterr().out


def test_a_wrong_filter_is_marked_at_its_place(llmops: Llmops, sweep, capsys):
    assert llmops("runs", "--where", "method.r > 8 and evel_loss < 1") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].index("evel_loss") == lines[1].index("^")
    assert "No run has a column 'evel_loss'." in lines[2]
    assert "eval_loss" in lines[3]
    assert llmops("runs", "--sort", "method.q") == 1
    assert "method.r" in capsys.readouterr().err


def test_columns_are_listed_and_files_written(llmops: Llmops, sweep, capsys, tmp_path):
    assert llmops("runs", "--columns", "help") == 0
    out = capsys.readouterr().out
    assert [
        name for name in ("optimizer.learning_rate", "tags", "eval_loss") if name not in out
    ] == []
    path = tmp_path / "runs.csv"
    assert llmops("runs", "--columns", "method.r,differs", "-o", str(path)) == 0
    with path.open(newline="") as file:
        assert list(csv.reader(file))[1] == ["menu-2", "16", "lr 5e-4 · r 16"]
    assert llmops("runs", "-o", str(tmp_path / "runs.xlsx")) == 1


def test_tags_are_added_and_removed(llmops: Llmops, sweep, capsys):
    assert llmops("tag", "menu-1", "best", "paper", "best") == 0
    assert "menu-1: best, paper" in capsys.readouterr().out
    assert llmops("tag", "menu-1", "--remove", "best") == 0
    assert llmops("runs", "--where", "'paper' in tags", "--columns", "tags", "--json") == 0
    assert "menu-1" in capsys.readouterr().out
    assert llmops("tag", "menu-1", "x" * 61) == 1
    assert "a project 60" in capsys.readouterr().err


def test_python_gives_a_table_and_a_frame(sweep):
    found = api.runs("method.r > 8", sort="-eval_loss", columns=["method.r", "eval_loss"])
    assert [run.id for run in found] == ["menu-1", "menu-2"]
    assert found.differing == ["optimizer.learning_rate"]
    assert list(found.to_pandas()["method.r"]) == [16, 16]
    assert "lr 5e-4" in repr(found)
    assert "<th>eval loss</th>" in found._repr_html_()
    with pytest.raises(QueryError, match="method"):
        api.runs("metod.r > 8")
    assert api.runs("method.r > 99")._repr_html_() == "no runs yet"
    usual = api.runs()
    assert "lr 2e-3 · r 8" in usual._repr_html_()
    assert usual.to_pandas().loc["menu-0", "method.r"] == 8


def test_hostile_names_are_escaped(home):
    store = RunStore()
    for number in range(2):
        config = {"<b>": f"<img src=x onerror=alert({number})>"}
        add(store, f"x-{number}", config=config, name="<script>[red]")
    html = api.runs()._repr_html_()
    assert "<script>" not in html
    assert "<img" not in html
