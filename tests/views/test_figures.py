"""Figures as text: one way to write a unit, NaN with its first step, progress with its attempt."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.store.journal.summary import Unit
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt
from llmops_kernel.views import static_run
from llmops_kernel.views.figures import compared_figures, figures, live_figures, run_table
from llmops_kernel.views.snapshot import progress_text, snapshot
from llmops_kernel.views.summary import summarise
from tests.store.events import end, evaluation, phase, restart, start, step, steps

RECORD = RunRecord(run_id="menu-1", name="menu", created_s=1.0, cluster="local", config={})


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("loss", 1.23456, "1.2346"),
        ("loss", math.nan, "NaN"),
        ("fraction", 0.412, "41.2 %"),
        ("per_second", 1234.0, "1,234"),
        ("seconds", 0.1234, "123 ms"),
        ("seconds", 83.0, "1 min 23 s"),
        ("bytes", 3 * 2**29, "1.50 GiB"),
        ("count", 120, "120"),
        ("exponent", 2e-4, "2.00e-04"),
        ("number", 0.91234, "0.9123"),
    ],
)
def test_a_number_is_written_by_its_unit(unit: Unit, value: float, text: str) -> None:
    assert fmt.by_unit(value, unit) == text


@pytest.mark.parametrize("unit", get_args(Unit))
def test_an_unknown_number_of_any_unit_is_a_dash(unit: Unit) -> None:
    assert fmt.by_unit(None, unit) == "–"


def diverged() -> TrainingView:
    events = [step(1, loss=5.5645), step(2, loss=5.6), step(3, loss=math.nan)]
    return TrainingView([start(total=4), *events, step(4, loss=math.nan), end("SUCCEEDED")])


def test_a_diverged_run_never_shows_its_last_finite_loss() -> None:
    view = diverged()
    line = run_table([summarise(RECORD, view, [])], now_s=60.0)
    assert "NaN since step 3" in line.text()
    for text in (
        line.text(),
        line.html(),
        static_run.text(view),
        static_run.table_html(view),
        static_run.one_line(view),
        str(snapshot(view, RECORD, now_s=60.0).figures),
    ):
        assert "NaN since step 3" in text
        assert "5.5645" not in text
        assert "5.6000" not in text
    (loss,) = [figure for figure in figures(view) if figure.key == "loss"]
    assert loss.value is None
    assert view.summary()["nan_since"] == 3


def test_a_list_says_how_long_a_run_took_or_has_been_running() -> None:
    events = [phase("driver", "begin", 100.0, stream="1-driver", seq=1)]
    running = summarise(RECORD, TrainingView(events), [])
    table = run_table([running], now_s=165.0)
    assert table.rows[0][table.names.index("duration")] == "1 min 05 s"
    ended = EndEvent(state="SUCCEEDED", time_s=130.0, stream="1-driver", seq=2)
    done = summarise(RECORD, TrainingView([*events, ended]), [])
    table = run_table([done, summarise(RECORD, TrainingView(), [])], now_s=9999.0)
    assert [row[table.names.index("duration")] for row in table.rows] == ["30.0 s", "–"]


def test_a_list_says_what_a_run_does_before_its_first_step() -> None:
    """It said "no progress yet" for twelve minutes."""
    events = [phase("runtime_env", "begin", 100.0, stream="1-client", seq=1)]
    assert summarise(RECORD, TrainingView(events), []).reason == "Preparing the runtime environment"
    events.append(end("SUCCEEDED"))
    assert summarise(RECORD, TrainingView(events), []).reason == ""


def test_figures_follow_the_kinds_list_and_its_places() -> None:
    view = TrainingView(
        [start(), *steps(1, 3), evaluation(3, stream="1-worker-1", seq=9, time_s=9)]
    )
    keys = [figure.key for figure in figures(view)]
    assert keys[:4] == ["loss", "eval_loss", "mfu", "tokens_per_second"]
    assert "learning_rate" not in [figure.key for figure in compared_figures(view)]
    assert "submit_to_first_step" not in [figure.key for figure in live_figures(view)]


def test_the_hint_of_mfu_says_what_other_definitions_give() -> None:
    known = [start(peak_flops=312e12), *steps(1, 3, mfu=0.4, mfu_palm=0.47, hfu=0.53)]
    (hint,) = [one.hint for one in figures(TrainingView(known)) if one.key == "mfu"]
    assert "312 TFLOPS" in hint
    assert "(mfu_palm), 47.0%" in hint
    assert "(hfu), 53.0%" in hint
    view = TrainingView([start(peak_flops=312e12), *steps(1, 3)])
    (hint,) = [one.hint for one in figures(view) if one.key == "mfu"]
    assert "mfu_palm" not in hint


def test_the_hint_of_mfu_says_why_the_peak_is_not_known() -> None:
    why = "not measured: other processes are using the CPU"
    for source, words in (("", "is not known"), (why, f"is not known ({why})")):
        view = TrainingView([start(peak_source=source), *steps(1, 3)])
        (hint,) = [one.hint for one in figures(view) if one.key == "mfu"]
        assert hint.endswith(words)


def test_best_metrics_are_figures_with_their_direction() -> None:
    values = {"eval_loss": 2.0, "eval_field_accuracy": 0.5, "eval_wer": 0.2}
    view = TrainingView([evaluation(3, stream="1-worker-1", seq=9, time_s=9, **values)])
    shown = {f.key: (f.label, f.text, f.better) for f in compared_figures(view)}
    assert shown["eval_field_accuracy"] == ("best field accuracy", "0.5", "higher")
    assert shown["eval_wer"] == ("best wer", "0.2", "lower")


def test_progress_names_the_attempt_it_comes_from_until_the_new_one_reports() -> None:
    lost = [start(), *steps(1, 9), restart(0, time_s=150, seq=5)]
    view = TrainingView(lost)
    assert progress_text(view) == "step 9 of 20 (before the restart)"
    view.apply([EndEvent(state="FAILED", attempt=1, stream="1-driver", seq=9, time_s=200)])
    view.apply([start(stream="2-worker-1")])
    assert progress_text(view) == "step 9 of 20 (attempt 1)"
    (loss,) = [figure for figure in figures(view) if figure.key == "loss"]
    assert loss.text == "0.1111"
    view.apply(steps(1, 1, stream="2-worker-1"))
    assert progress_text(view) == "step 1 of 20"
