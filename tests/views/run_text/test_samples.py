"""The answers of a run's evaluations, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.errors import RunError
from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.panel import SampledAnswer
from llmops_kernel.views.samples import (
    choose_samples,
    compared_samples,
    sample_history,
    sample_records,
    sampled_rows,
)
from llmops_kernel.views.snapshot import sample_table


def report(step: int, *samples: dict[str, str], seq: int | None = None, **values: Any) -> EvalEvent:
    number = step if seq is None else seq
    return EvalEvent(
        step=step, metrics={}, samples=samples, time_s=float(number), seq=number + 1, **values
    )


def row(name: str, answer: str) -> dict[str, str]:
    return {"row": name, "prompt": f"p{name}", "prediction": answer, "reference": "r"}


def view_of(*events: EvalEvent) -> TrainingView:
    view = TrainingView()
    view.apply(list(events))
    return view


def test_a_row_is_followed_over_the_steps():
    view = view_of(
        report(0, row("1", "a"), row("9", "b")), report(10, row("1", "c"), row("9", "d"))
    )
    assert [
        (one.name, {step: sample["prediction"] for step, sample in one.answers.items()})
        for one in sampled_rows(view.evaluations)
    ] == [("1", {0: "a", 10: "c"}), ("9", {0: "b", 10: "d"})]
    assert [
        (r["step"], r["row"], r["prediction"])
        for r in sample_records(sampled_rows(view.evaluations))
    ] == [
        (0, "1", "a"),
        (10, "1", "c"),
        (0, "9", "b"),
        (10, "9", "d"),
    ]


def test_an_evaluation_that_a_restart_repeats_counts_once():
    view = view_of(
        report(10, row("1", "first"), stream="1-worker-1"),
        report(10, row("1", "again"), seq=20, stream="2-worker-1", attempt=2),
    )
    assert [r["prediction"] for r in sample_records(sampled_rows(view.evaluations))] == ["again"]


def test_samples_of_an_older_or_a_foreign_report_go_by_their_place():
    view = view_of(report(1, {"prediction": "a"}, {"prediction": "b"}), report(2))
    assert [
        (r["row"], r["prediction"]) for r in sample_records(sampled_rows(view.evaluations))
    ] == [("1", "a"), ("2", "b")]
    assert sampled_rows([]) == []


def test_a_choice_that_nothing_has_names_what_there_is():
    view = view_of(report(0, row("1", "a")), report(10, row("1", "c"), row("2", "d")))
    assert [one.name for one in choose_samples(view)] == ["1", "2"]
    (only,) = choose_samples(view, row="1", step=10)
    assert (list(only.answers), only.newest["prediction"]) == ([10], "c")
    for asked, words in (
        ({"row": "3"}, "1, 2"),
        ({"step": 5}, "0, 10"),
        ({"step": 0, "row": "2"}, "10"),
    ):
        with pytest.raises(RunError) as caught:
            choose_samples(view, **asked)
        assert words in caught.value.remedy
    with pytest.raises(RunError) as caught:
        choose_samples(view_of(), row="1")
    assert "evaluation.generate" in caught.value.remedy


def test_the_panel_gets_the_answers_of_each_step_bounded():
    reports = [report(n, row("1", f"a {n} " + "x" * 9_000), row("2", "b")) for n in range(40)]
    first, second = sample_history(view_of(*reports), ["1", "2"])
    assert [answer.at for answer in first.answers][::11] == ["0", "39"]
    assert len(first.answers) == 12
    assert first.answers[0].words == [(reports[0].samples[0]["prediction"][:1666], False)]
    assert first.answers[1].words[1][1] is True
    assert "more characters" in first.answers[1].more
    assert [answer.more for answer in second.answers] == [""] * 12
    assert sample_history(view_of(report(0, row("1", "a"))), ["1"]) == []
    (only,) = sample_history(view_of(*reports), ["2", "9"])
    assert only.row == "2"


def test_the_newest_samples_say_what_the_answers_took():
    view = view_of(report(40, row("1", "a"), duration_s=2.0, answers_s=1.5))
    assert sample_table(view).at == "at step 40; all answers were generated in 1.5 s"
    assert sample_table(view_of(report(40, row("1", "a")))).at == "at step 40"


def test_several_runs_are_compared_row_by_row():
    first = view_of(report(0, row("1", "old")), report(9, row("1", "a red cat"), row("2", "x")))
    second = view_of(report(5, row("1", "a blue cat"), row("3", "y")))
    other = view_of(report(5, {**row("1", "z"), "prompt": "another prompt"}))
    (only,) = compared_samples([first, second, other])
    assert (only.row, only.prompt, only.reference) == ("1", "p1", "r")
    one, two, three = only.answers
    assert one == SampledAnswer(at="9", words=[("a red cat", False)], more="")
    assert (two.at, two.words) == ("5", [("a ", False), ("blue", True), (" cat", False)])
    assert three is None
    assert compared_samples([first, other]) == compared_samples([]) == []


def test_many_long_samples_of_many_runs_stay_bounded():
    rows = [row(f"{n}", "word " * 3_000) for n in range(100)]
    found = compared_samples([view_of(report(1, *rows)) for _ in range(8)])
    assert len(found) == 20
    assert sum(len(sample.model_dump_json()) for sample in found) < 200_000
