"""A kind that is registered from here alone appears on every screen with its own figures."""

from __future__ import annotations

import io
import json
from array import array

import pytest
from rich.console import Console

import llmops_kernel as llmops
from llmops_kernel.cli.runs.live_parts import screen, summary
from llmops_kernel.cli.runs.tables import runs_table
from llmops_kernel.kinds.registry import kind_named, kinds, view_of
from llmops_kernel.server.runs.routes import figures as compared_rows
from llmops_kernel.server.runs.rows import row_of
from llmops_kernel.store.journal.view import Progress
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import static_run
from llmops_kernel.views.columns import PackedRows
from llmops_kernel.views.compare import render_png
from llmops_kernel.views.compare import text as compared_text
from llmops_kernel.views.figures import run_table
from llmops_kernel.views.panel import RunColumn
from llmops_kernel.views.saved_run import saved_run
from llmops_kernel.views.snapshot import snapshot
from llmops_kernel.views.summary import list_runs
from tests.kinds.conftest import add_index_run, add_training_run
from tests.kinds.toy import TOY, IndexView

pytestmark = pytest.mark.usefixtures("toy")
PNG = b"\x89PNG"


def shown(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(renderable)
    return out.getvalue()


def test_it_is_registered_by_its_name_beside_the_built_in_ones() -> None:
    assert kind_named("index") is TOY
    assert {"train", "index"} <= {kind.name for kind in kinds()}


def test_the_view_is_that_of_the_kind(store: RunStore) -> None:
    view = view_of(store, add_index_run(store))
    assert isinstance(view, IndexView)
    assert view.progress == Progress(100, 200, "documents")
    assert (view.state, view.documents_per_second) == ("RUNNING", 160.0)


def test_a_list_has_its_figures_beside_those_of_training_runs(store: RunStore) -> None:
    add_training_run(store)
    add_index_run(store)
    index, lora = list_runs(store)
    assert (index.kind, lora.kind) == ("index", "train")
    assert [figure.text for figure in index.figures] == ["160"]
    assert index.curve == pytest.approx((10.0, 5.0, 10 / 3, 2.5))
    table = run_table([index, lora], now_s=60.0)
    assert table.names[:5] == ("run", "kind", "state", "progress", "documents/s")
    assert table.rows[0][3:5] == ("100 of 200 documents", "160")
    assert table.rows[1][4] == "–"
    assert "documents/s" in table.html()
    assert "100 of 200 documents" in shown(runs_table(table))


def test_the_panel_gets_its_columns_words_and_figures(store: RunStore) -> None:
    run_id = add_index_run(store)
    view = view_of(store, run_id)
    state = snapshot(view, store.record(run_id), now_s=30.0)
    assert [column.name for column in state.columns] == [
        "done",
        "documents_per_second",
        "misses",
    ]
    assert state.columns[2] == RunColumn(name="misses", label="misses", unit="number")
    assert (state.curve, state.evals) == ("misses", None)
    assert (state.what, state.progress) == ("index of docs", 0.5)
    assert state.progress_text == "100 of 200 documents"
    assert [figure.label for figure in state.figures] == ["documents/s"]
    packed = PackedRows()
    assert packed.sync(view) == 0
    assert array("f", packed.rows())[:3].tolist() == [25.0, 40.0, 10.0]


def test_its_reports_are_a_table_in_python(store: RunStore) -> None:
    table = llmops.attach(add_index_run(store)).metrics()
    assert list(table.columns) == ["documents_per_second", "misses"]
    assert list(table.index) == [25, 50, 75, 100]
    assert table["documents_per_second"].tolist() == [40.0, 80.0, 120.0, 160.0]


def test_before_its_first_report_it_shows_its_own_words(store: RunStore) -> None:
    view = IndexView(store.events(add_index_run(store))[:3], kind="index")
    assert snapshot(view, store.record("index-1"), now_s=12.0).waiting_text == (
        "Opening the index…"
    )
    assert "Opening the index" in shown(screen(view, store.record("index-1"), now_s=12.0))


def test_terminal_html_picture_and_saved_notebook(store: RunStore) -> None:
    run_id = add_index_run(store)
    view, record = view_of(store, run_id), store.record(run_id)
    for text in (
        shown(screen(view, record, now_s=30.0)),
        shown(summary(view, record, now_s=30.0)),
        static_run.text(view, record),
        static_run.table_html(view, record),
    ):
        assert "documents/s" in text
        assert "160" in text
        assert "loss" not in text
    assert static_run.one_line(view, now_s=30.0).startswith(
        "Running, 100 of 200 documents, 160 documents/s"
    )
    assert static_run.render_png(view, now_s=30.0).startswith(PNG)
    saved = saved_run(view, record, now_s=30.0)
    assert saved["panel"]["num_rows"] == 4
    json.dumps(saved, allow_nan=False)


def test_wire_rows_and_comparison(store: RunStore) -> None:
    add_training_run(store)
    add_index_run(store)
    row = row_of(list_runs(store)[0], store)
    assert (row.kind, row.curve_label) == ("index", "misses")
    assert row.progress is not None
    assert row.progress.model_dump() == {"done": 100, "total": 200, "unit": "documents"}
    assert [(f.label, f.text, f.value) for f in row.figures] == [("documents/s", "160", 160.0)]
    assert row.curve == pytest.approx([10.0, 5.0, 10 / 3, 2.5])
    assert row.actions == ["stop", "compare"]
    views = [view_of(store, "lora-1"), view_of(store, "index-1")]
    compared = {figure.label: figure.texts for figure in compared_rows(views)}
    assert compared["documents/s"] == ["–", "160"]
    assert compared["loss"][1] == "–"
    named = [("lora-1", views[0]), ("index-1", views[1])]
    assert "documents/s" in compared_text(named)
    assert render_png(named).startswith(PNG)
