"""What a run does that makes no progress meanwhile: how many rows of an evaluation, since when."""

from __future__ import annotations

import pytest

from llmops_kernel.kinds.registry import new_view
from llmops_kernel.metrics.events import AnyEvent, ProgressEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.log_lines import LogLines
from llmops_kernel.views.snapshot import progress_text, waiting_text
from llmops_kernel.views.state_text import state_text
from llmops_kernel.views.static_run import one_line
from tests.store.events import end, evaluation, phase, start, steps

WORKER = "1-worker-1"


def counted(done: int, *, seq: int, unit: str = "rows", **values: float) -> ProgressEvent:
    return ProgressEvent(
        done=done, total=96, unit=unit, values=values, stream=WORKER, seq=seq, time_s=110.0 + seq
    )


def evaluating(*more: AnyEvent) -> list[AnyEvent]:
    begin = phase("evaluate", "begin", 110.5, stream=WORKER, seq=50)
    return [start(), *steps(1, 10), begin, counted(0, seq=51), *more]


def test_rows_of_an_evaluation_are_on_every_screen_and_the_progress_stays_the_steps() -> None:
    view = TrainingView(evaluating(counted(40, seq=52, per_second=2.1)))
    assert state_text(view) == "Evaluating: 40 of 96 rows, 2.10 a second"
    assert state_text(view) in one_line(view, now_s=165.0)
    assert progress_text(view) == "step 10 of 20"
    answers = TrainingView(evaluating(counted(0, seq=53, unit="answers")))
    assert state_text(answers) == "Evaluating: 0 of 96 answers"
    over = [
        evaluation(10, stream=WORKER, seq=60, time_s=180.0, eval_loss=1.0),
        phase("evaluate", "end", 180.0, stream=WORKER, seq=61),
    ]
    assert state_text(TrainingView(evaluating(*over))) == ""
    assert state_text(TrainingView([*evaluating(), end("FAILED", message="boom")])) == "boom"


def test_a_view_has_the_newest_count_in_any_order_of_events() -> None:
    view = TrainingView(reversed([*evaluating(), counted(7, seq=52), counted(9, seq=53)]))
    assert view.counted is not None
    assert view.counted.done == 9


def test_an_evaluation_that_was_begun_after_the_count_has_none() -> None:
    later = [
        phase("evaluate", "end", 180.0, stream=WORKER, seq=61),
        phase("evaluate", "begin", 300.0, stream=WORKER, seq=70),
    ]
    assert state_text(TrainingView(evaluating(*later))) == "Evaluating"


def test_a_log_gets_a_line_as_the_rows_go_on() -> None:
    view, lines = TrainingView(evaluating()), LogLines(now_s=0.0)
    assert "0 of 96 rows" in lines.line(view, now_s=120.0)
    assert lines.line(view, now_s=140.0) == ""
    view.apply([counted(40, seq=52)])
    assert "40 of 96 rows" in lines.line(view, now_s=160.0)


def test_a_scoring_says_what_its_first_rows_wait_for() -> None:
    view = new_view("score")
    view.apply(
        [
            phase("first_rows", "begin", 100.0, stream="1-driver", seq=1),
            ProgressEvent(done=0, total=96, stream="1-driver", seq=2, time_s=101.0),
        ]
    )
    assert state_text(view) == "Waiting for the first answers"


@pytest.mark.parametrize(
    ("name", "detail", "words"),
    [
        ("model_load", "", "Loading the model… (35.0 s so far)"),
        ("engine", "Qwen on CPU", "Building optimizer and engine… (35.0 s so far; Qwen on CPU)"),
    ],
)
def test_after_ten_seconds_a_phase_says_since_when(name: str, detail: str, words: str) -> None:
    view = TrainingView([phase(name, "begin", 100.0, stream=WORKER, seq=1, detail=detail)])
    assert waiting_text(view, now_s=109.0) == words.partition(" (")[0]
    assert waiting_text(view, now_s=135.0) == words
    assert words in one_line(view, now_s=135.0)


@pytest.mark.parametrize(
    "name", ["runtime_env", "supervisor", "batch_search", "workers", "compile", "hub"]
)
def test_phases_that_others_decide_say_why_they_may_take_long(name: str) -> None:
    view = TrainingView([phase(name, "begin", 100.0, stream="1-driver", seq=1)])
    short, long = (waiting_text(view, now_s=100.0 + waited) for waited in (5, 700))
    assert long.startswith(short)
    assert "so far; " in long


@pytest.mark.parametrize("name", ["pending", "runtime_env", "supervisor", "workers"])
def test_a_start_that_waits_for_the_cluster_says_what_that_reports(name: str) -> None:
    """It only named `llmops status`, which knew that the fork server was not ready."""
    view = TrainingView([phase(name, "begin", 100.0, stream="1-driver", seq=1)])
    assert "`llmops status` says whether" in waiting_text(view, now_s=135.0)
    view.cluster_says = "fork server: starting (the last one: was killed); 31 cold starts"
    text = waiting_text(view, now_s=135.0)
    assert text.endswith("fork server: starting (the last one: was killed); 31 cold starts)")
    assert "llmops status" not in text
    assert text in one_line(view, now_s=135.0)
    log = LogLines(now_s=100.0)
    assert text in log.line(view, now_s=135.0)
    assert log.line(view, now_s=146.0) == ""
    view.cluster_says = "fork server: warm"
    assert "fork server: warm" in log.line(view, now_s=157.0)


def test_other_phases_do_not_ask_the_cluster() -> None:
    view = TrainingView([phase("model_load", "begin", 100.0, stream=WORKER, seq=1)])
    view.cluster_says = "fork server: warm"
    assert "fork server" not in waiting_text(view, now_s=135.0)
