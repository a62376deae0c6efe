"""Snapshot, columns, static pictures and comparison over simulated journals."""

from __future__ import annotations

import json
import math
from array import array
from typing import Any

import pytest
from matplotlib.figure import Figure

from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.metrics.events import EvalEvent, PhaseEvent
from llmops_kernel.store.diff import FileChange, RunDiff
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views import compare, static_run
from llmops_kernel.views.columns import RowCursor, pack
from llmops_kernel.views.comparison_tables import table
from llmops_kernel.views.panel import PanelState, PanelWarning
from llmops_kernel.views.snapshot import snapshot
from tests.widgets.folder_run import FolderRun

PNG = b"\x89PNG\r\n\x1a\n"


def view_of(simulation: Any) -> TrainingView:
    source = FolderRun(simulation.folder).follower()
    source.poll()
    return source.view


def figures(words: PanelState) -> dict[str, str]:
    return {figure.label: figure.value for figure in words.figures}


def words_of(simulation: Any) -> PanelState:
    return snapshot(view_of(simulation), simulation.record(), now_s=simulation.clock())


def test_finished_run(simulate: Any) -> None:
    run = simulate()
    run.whole()
    words = words_of(run)
    assert (words.state, words.progress, words.progress_text) == (
        "SUCCEEDED",
        1.0,
        "step 120 of 120",
    )
    assert words.what == "SmolLM2-135M-Instruct · lora · ddp × 2"
    record = run.record()
    begun = {"id": "/runs/sft-1/output", "run": "sft-1", "step": 1200}
    config = {**record.config, "model": begun, "objective": {"type": "dpo"}}
    again = snapshot(view_of(run), record.model_copy(update={"config": config}), now_s=run.clock())
    assert again.what == "from sft-1 step 1,200 · dpo · lora · ddp × 2"
    assert words.outputs[0].what == "adapter"
    assert [point[0] for point in words.evals] == [0, 40, 80, 120]
    assert words.eval_rows.columns == ["step", "loss", "field accuracy"]
    assert PanelState.model_validate_json(words.model_dump_json()) == words


def test_unknown_figures_are_dashes(simulate: Any) -> None:
    run = simulate(mfu=None, peak_flops=None)
    run.start_up()
    words = words_of(run)
    assert set(figures(words).values()) == {"–"}
    assert words.progress is None
    assert words.waiting_text == "Running the first step…"


def test_running_phase_ticks_and_later_phases_do_not_flatten_the_bars(simulate: Any) -> None:
    run = simulate()
    run.start_up("workers")
    run.sleep(3.0)
    last = words_of(run).waterfall.rows[-1]
    assert (last.name, last.running, last.text) == ("workers", True, "3.0 s")
    done = simulate("done", steps=2000)
    done.whole()
    waterfall = words_of(done).waterfall
    assert sum(row.width for row in waterfall.rows) == pytest.approx(1.0, abs=0.1)
    assert waterfall.later == ["evaluate × 50: 15.0 s"]


def test_warm_or_cold_is_reported_with_the_reason_and_the_memory(simulate: Any) -> None:
    run = simulate()
    run.start_up()
    assert words_of(run).processes == ""
    assert ("processes", "–") in static_run.rows(view_of(run))
    run.processes()
    assert words_of(run).processes == "warm"
    run.processes(cold="the fork server was gone", private_bytes=300 * 2**20)
    reported = words_of(run).processes
    assert reported == (
        "2 warm, 1 cold (rank 1): the fork server was gone;"
        " private memory of a worker 300 MiB to 301 MiB"
    )
    assert reported in static_run.text(view_of(run))
    assert reported in static_run.table_html(view_of(run))
    assert ["processes", "2 warm, 1 cold"] in table([("a", view_of(run))])
    assert static_run.render_png(view_of(run)).startswith(PNG)


def test_failure_shows_place_ranks_and_remedy_once(simulate: Any) -> None:
    run = simulate()
    run.start_up("data")
    run.fail()
    words = words_of(run)
    assert words.failures[0].where == "menu_hooks.py:31"
    assert words.failures[0].ranks == "ranks 0-1"
    assert words.no_steps is True
    html = static_run.table_html(view_of(run))
    assert html.count("check rows whose cuisine is null") == 1
    assert "'NoneType'" not in html  # Escaped.
    assert "menu_hooks.py:31" in static_run.text(view_of(run))


def test_same_warnings_are_counted(simulate: Any) -> None:
    run = simulate()
    for _ in range(3):
        run.warn("slow disk", "another one")
    (warning,) = words_of(run).warnings
    assert warning == PanelWarning(message="slow disk", remedy="another one", times=3)


def test_diverged_loss_shows_and_stays_json(simulate: Any) -> None:
    run = simulate(steps=3)
    run.start_up()
    run.start()
    run.loss_at = lambda step: math.nan
    for _ in run.train():
        pass
    run.worker.emit(EvalEvent(step=3, metrics={"eval_loss": math.nan}, num_rows=1, duration_s=1))
    words = words_of(run)
    assert figures(words)["loss"] == "NaN since step 1"
    assert words.evals == []
    json.dumps(words.model_dump(mode="json"), allow_nan=False)
    assert static_run.render_png(view_of(run)).startswith(PNG)


@pytest.mark.parametrize("until", ["nothing", "snapshot", "data", "steps", "end"])
def test_pictures_of_every_stage(simulate: Any, until: str) -> None:
    run = simulate(steps=5)
    if until in ("snapshot", "data"):
        run.start_up(until)
    elif until != "nothing":
        run.start_up()
        run.start()
        for _ in run.train():
            pass
    if until == "end":
        run.succeed()
    view = view_of(run)
    assert static_run.render_png(view, title=run.run_id, now_s=run.clock()).startswith(PNG)
    assert view.state.capitalize() in static_run.text(view)
    assert "<table>" in static_run.table_html(view, run.record())


def test_packed_rows_carry_nan_for_unknown(simulate: Any) -> None:
    run = simulate(steps=2, mfu=None)
    run.whole()
    values = array("f", pack(view_of(run).steps, COLUMNS))
    names = [column.name for column in COLUMNS]
    row = dict(zip(names, values[len(names) :], strict=True))
    assert row["step"] == 2
    assert math.isnan(row["mfu"])
    assert math.isnan(row["peak_memory_bytes"])
    assert row["loss"] > 0


def test_cursor_sends_each_row_once_and_again_after_a_restart(simulate: Any) -> None:
    run = simulate(steps=60)
    run.start_up()
    run.start()
    source = FolderRun(run.folder).follower()
    cursor, shown = RowCursor(), []

    def follow() -> None:
        source.poll()
        if (news := cursor.advance(source.view)) is not None:
            shown[news[0] :] = news[1]
        assert [step.step for step in shown] == [step.step for step in source.view.steps]
        assert shown == source.view.steps

    follow()
    for step in run.train(last=30):
        if step % 7 == 0:
            follow()
    follow()
    assert cursor.advance(source.view) is None
    run.restart(20)
    follow()
    assert shown[-1].step == 20
    run.start(first_step=21)
    for step in run.train(21, 45):
        if step % 4 == 0:
            follow()
    follow()
    assert len(shown) == 45


def test_comparison_has_a_column_a_run_and_escapes(simulate: Any) -> None:
    first, second = simulate("a"), simulate("b", run_id="lora-2", steps=100, mfu=None)
    first.whole()
    second.start_up("workers")
    runs = [("a<b", view_of(first)), ("lora-2", view_of(second))]
    lines = table(runs)
    assert lines[0] == ["", "a<b", "lora-2"]
    assert next(line for line in lines if line[0] == "MFU") == ["MFU", "41.7 %", "–"]
    assert ["model load", "1.4 s", "–"] in lines
    words, picture, folded = compare.bundles(runs)
    assert "a&lt;b" in words["text/html"]
    assert picture["image/png"].startswith(PNG)
    assert "submit to first step" in words["text/plain"]
    assert "submit to first step" not in words["text/html"]
    assert folded["text/html"].count("<details>") == 2


def test_a_comparison_says_first_what_differs_and_speed_last(simulate: Any) -> None:
    answers = {"a": "cuisine thai <b>", "b": "cuisine thai, spicy yes"}
    runs = []
    for name, answer in answers.items():
        run = simulate(name)
        run.whole()
        sample = {"row": "12", "prompt": "Tom Kha", "prediction": answer, "reference": "thai"}
        evaluation = {"metrics": {"eval_loss": 0.5}, "num_rows": 4, "duration_s": 1.0}
        run.worker.emit(EvalEvent(step=120, samples=(sample,), **evaluation))
        runs.append((name, view_of(run)))
    change = FileChange(path="hooks.py", kind="changed", unified_diff="--- a\n+++ b\n-x\n+y\n")
    config = [("optimizer.learning_rate", 1e-4, 2e-3)]
    diff = RunDiff(a="a", b="b", config=config, code=[change], environment=[])
    text = compare.text(runs, [diff], scores="f1 0.8")
    parts = ["optimizer.learning_rate", "f1 0.8", "eval loss", "{+spicy yes+}", "MFU", "+y"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    html = compare.words_html(runs, [diff], scores="<p>f1</p>")
    parts = ["optimizer.learning_rate", "<p>f1</p>", "eval loss", "<mark>"]
    assert [html.index(part) for part in parts] == sorted(html.index(part) for part in parts)
    assert "thai &lt;b&gt;" in html
    assert "MFU" not in html


def test_a_title_that_looks_like_a_formula_is_a_text(simulate: Any) -> None:
    run = simulate()
    run.start_up("data")
    for title in (r"$\frac{1}{$", "cost $5 and $6", "$x_{$"):
        view = view_of(run)
        assert static_run.render_png(view, title=title).startswith(PNG)
        assert compare.render_png([(title, view), (f"b {title}", view)]).startswith(PNG)


def test_the_label_of_a_start_up_bar_is_never_over_the_phases_names() -> None:
    """A bar that begins at the left and takes most of the width has its label inside (S18)."""
    axes = Figure(figsize=(4, 3)).subplots()
    events = []
    for name, begin_s, end_s in (("queue", 0.0, 2.0), ("workers", 1.0, 900.0), ("data", 800, 901)):
        events.append(PhaseEvent(name=name, state="begin", time_s=1e9 + begin_s))
        events.append(PhaseEvent(name=name, state="end", time_s=1e9 + end_s))
    static_run.draw_waterfall(axes, TrainingView(events, kind="train"), now_s=1e9 + 901)
    assert len(axes.texts) == 3
    for text in axes.texts:
        x, _ = text.get_position()
        aligned = text.get_horizontalalignment()
        # To the left of x there must be space for a label, and to the right of it too.
        assert x > 901 * 0.2 if aligned == "right" else x < 901 * 0.8
