"""What runs are called, wherever one of them is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.api.run_handle import Run
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import static_run
from llmops_kernel.views.saved_run import saved_run
from llmops_kernel.views.state_text import name_of, name_with_id
from tests.server.runs import make_run

ID = "toy-260901-101500-a1b2"
OTHER = "toy-260901-101600-c3d4"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    store = RunStore()
    make_run(store, ID, steps=2, created_s=1.0)
    make_run(store, OTHER, steps=2, created_s=2.0, learning_rate=2e-3)
    return Run(Backend(store=store), ID)


def test_a_title_comes_before_what_differs_and_that_before_the_config(run: Run) -> None:
    assert name_of(run.record, title="Best", differs="lr 2e-3") == "Best"
    assert name_of(run.record, differs="lr 2e-3") == "lr 2e-3"
    assert name_of(run.record) == "toy"


def test_an_id_stands_once_beside_the_name() -> None:
    assert name_with_id("Best", ID) == f"Best ({ID})"
    assert name_with_id("toy", ID) == ID
    assert name_with_id("to", ID) == f"to ({ID})"


def test_a_run_shows_its_title_in_words_and_tables(run: Run) -> None:
    assert repr(run).startswith(f"<Run {ID}: Succeeded")
    run.title = "Best & last"
    called = f"Best & last ({ID})"
    assert repr(run).startswith(f"<Run {called}: Succeeded")
    assert "<b>Best &amp; last (" in run._repr_html_()
    view, record = run.view, run.record
    assert static_run.rows(view, record, title=run.title)[0] == ("run", called)
    assert called in static_run.text(view, record, title=run.title)
    assert "Best &amp; last" in static_run.table_html(view, record, title=run.title)
    saved = saved_run(view, record, now_s=3.0, title=run.title)
    assert saved["panel"]["state"]["title"] == "Best & last"
    assert saved_run(view, record, now_s=3.0)["panel"]["state"]["title"] == "toy"


def test_a_difference_is_headed_by_what_differs(run: Run) -> None:
    text = run.diff(OTHER).text()
    assert text.splitlines()[:2] == [f"- lr 1e-4 ({ID})", f"+ lr 2e-3 ({OTHER})"]
    run.title = "Baseline"
    diff = run.diff(OTHER)
    assert diff.text().startswith(f"- Baseline ({ID})\n")
    assert f"Baseline ({ID})" in diff.to_html()
