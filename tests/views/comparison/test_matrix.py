"""Several runs as one matrix: means and spreads against numpy's, changes from the baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmops_kernel.metrics.events import EndEvent, EvalEvent, StartEvent, StepEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison_matrix import (
    ComparedRun,
    Matrix,
    cells_of,
    heads_of,
    matrix_html,
    matrix_of,
    matrix_text,
)

_SHAPE = {"num_workers": 1, "global_batch_size": 8, "device": "cpu", "dtype": "float32"}


def compared(
    number: int,
    eval_loss: float | None,
    *,
    code: str = "c0de",
    ended: str | None = "SUCCEEDED",
    **config: Any,
) -> ComparedRun:
    events: list[Any] = [StartEvent(total_steps=4, **_SHAPE)]
    events.append(StepEvent(step=4, loss=0.5 + number / 100, step_time_s=0.1))
    if eval_loss is not None:
        evaluation = {"metrics": {"eval_loss": eval_loss}, "num_rows": 4, "duration_s": 1.0}
        events.append(EvalEvent(step=4, **evaluation))
    if ended is not None:
        events.append(EndEvent(state=ended, last_step=4))
    record = RunRecord(
        run_id=f"m-{number}",
        name="m",
        cluster="local",
        created_s=float(number),
        code_hash=code,
        config=config,
    )
    return ComparedRun(name=f"run {number}", view=TrainingView(events, kind="train"), record=record)


def seeded() -> list[ComparedRun]:
    """Two learning rates with three seeds each, in the order in which they were submitted."""
    rates = [(1e-4, 1), (3e-4, 1), (1e-4, 2), (3e-4, 2), (1e-4, 3), (3e-4, 3)]
    losses = [0.70, 0.60, 0.72, 0.63, 0.71, 0.66]
    return [
        compared(
            number, loss, seed=seed, optimizer={"learning_rate": lr}, output={"url": f"/o/{number}"}
        )
        for number, ((lr, seed), loss) in enumerate(zip(rates, losses, strict=True))
    ]


def column(matrix: Matrix, label: str) -> list[Any]:
    at = matrix.figures.index(label)
    return [line.cells[at] for line in matrix.lines]


def test_each_run_has_a_line_with_what_differs_and_its_change_from_the_baseline() -> None:
    runs = [
        compared(0, 0.7, optimizer={"learning_rate": 1e-4}, method={"r": 4}),
        compared(1, 0.6, optimizer={"learning_rate": 3e-4}, method={"r": 4}),
        compared(2, None, optimizer={"learning_rate": 3e-4}, method={"r": 8}),
    ]
    matrix = matrix_of(runs)
    assert [field.path for field in matrix.fields] == ["optimizer.learning_rate", "method.r"]
    assert [line.values for line in matrix.lines] == [("1e-4", "4"), ("3e-4", "4"), ("3e-4", "8")]
    assert [line.runs for line in matrix.lines] == [(0,), (1,), (2,)]
    cells = column(matrix, "eval loss")
    assert [cell.change for cell in cells] == ["", fmt.by_unit(0.6 - 0.7, "loss"), fmt.DASH]
    assert [cell.is_best for cell in cells] == [False, True, False]
    assert [cell.text for cell in cells] == [fmt.loss(0.7), fmt.loss(0.6), fmt.DASH]
    other = column(matrix_of(runs, base=1), "eval loss")
    assert [cell.change for cell in other] == ["+" + fmt.by_unit(0.1, "loss"), "", fmt.DASH]


def test_losses_of_different_objectives_are_no_better_or_worse() -> None:
    begun = {"id": "/runs/m-0/output", "run": "m-0", "step": 4, "adapter": "continue"}
    runs = [
        compared(0, 0.7, model={"id": "tiny-llama", "run": None, "adapter": "continue"}),
        compared(1, 0.6, model=begun, objective={"type": "dpo"}),
    ]
    matrix = matrix_of(runs)
    assert [field.path for field in matrix.fields] == ["model.id", "objective.type"]
    assert matrix.lines[1].values == ("from m-0 step 4", "dpo")
    for label in ("loss", "eval loss"):
        cells = column(matrix, label)
        assert [(cell.change, cell.is_best) for cell in cells] == [("", False), (fmt.DASH, False)]


def test_runs_that_differ_in_nothing_but_the_seed_have_a_mean_and_a_spread() -> None:
    matrix = matrix_of(seeded())
    assert [line.runs for line in matrix.lines] == [
        (0, 2, 4),
        (0,),
        (2,),
        (4,),
        (1, 3, 5),
        (1,),
        (3,),
        (5,),
    ]
    slow, fast = (line for line in matrix.lines if line.is_mean)
    assert (slow.label, slow.is_base, fast.is_base) == ("mean of 3 seeds", True, False)
    assert slow.values[: len(matrix.fields)][0] == "1e-4"
    at = matrix.figures.index("eval loss")
    for line, losses in ((slow, [0.70, 0.72, 0.71]), (fast, [0.60, 0.63, 0.66])):
        mean, spread = float(np.mean(losses)), float(np.std(losses, ddof=1))
        assert line.cells[at].number == pytest.approx(mean)
        assert line.cells[at].text == f"{fmt.loss(mean)} ± {fmt.loss(spread)}"
    assert fast.cells[at].change == fmt.change(np.mean([0.60, 0.63, 0.66]), 0.71, "loss")
    assert [line.cells[at].is_best for line in (slow, fast)] == [False, True]
    # The baseline's setting follows the baseline.
    moved = matrix_of(seeded(), base=3)
    assert [line.is_base for line in moved.lines if line.is_mean] == [False, True]
    assert [line.runs for line in moved.lines if line.is_base] == [(1, 3, 5), (3,)]


def test_a_mean_says_of_how_many_runs_it_is() -> None:
    runs = [compared(n, loss, seed=n) for n, loss in enumerate([0.5, None, 0.7])]
    cell = column(matrix_of(runs), "eval loss")[0]
    assert cell.text == f"{fmt.loss(0.6)} ± {fmt.loss(np.std([0.5, 0.7], ddof=1))} (2 of 3)"
    alone = [compared(n, loss, seed=n) for n, loss in enumerate([0.5, None])]
    assert column(matrix_of(alone), "eval loss")[0].text == f"{fmt.loss(0.5)} (1 of 2)"


def test_a_run_that_has_not_ended_well_is_in_no_mean_and_says_how_far_it_is() -> None:
    runs = [compared(n, loss, seed=n) for n, loss in enumerate([0.5, 0.7])]
    runs.append(compared(2, 0.1, ended=None, seed=2))
    runs.append(compared(3, 9.0, ended="FAILED", seed=3))
    matrix = matrix_of(runs)
    mean = column(matrix, "eval loss")[0]
    assert mean.number == pytest.approx(0.6)
    assert mean.text.endswith("(2 of 4)")
    best = [cell.is_best for cell in column(matrix, "eval loss")]
    assert best == [False, True, False, False, False]
    assert [line.note for line in matrix.lines] == [
        "",
        "",
        "",
        "running, step 4 of 4",
        "failed, step 4 of 4",
    ]
    assert "run 2 (running, step 4 of 4)" in matrix_text(matrix)


def test_runs_of_other_code_are_no_repetitions() -> None:
    runs = [compared(n, 0.5, seed=n, code=code) for n, code in enumerate(["aaaa", "aaaa", "bbbb"])]
    matrix = matrix_of(runs)
    assert [line.runs for line in matrix.lines] == [(0, 1), (0,), (1,), (2,)]
    assert {field.path: field.is_minor for field in matrix.fields}["code"] is False
    again = [compared(n, 0.5) for n in range(2)]
    assert matrix_of(again).lines[0].label == "mean of 2 runs"


def test_where_a_run_writes_is_minor_and_not_in_plain_tables() -> None:
    matrix = matrix_of(seeded())
    assert [field.path for field in matrix.fields if field.is_minor] == ["output.url"]
    heads = heads_of(matrix)
    assert heads[:3] == ["run", "lr", "seed"]
    assert "url" not in heads
    assert all(len(cells_of(matrix, line)) == len(heads) for line in matrix.lines)


def test_text_and_html_say_which_run_is_the_baseline_and_escape_names() -> None:
    runs = [
        ComparedRun(name=f"<b>{n}", view=run.view, record=run.record)
        for n, run in enumerate(seeded())
    ]
    matrix = matrix_of(runs, base=1)
    text = matrix_text(matrix)
    assert "<b>1 (baseline)" in text
    assert text.count("(baseline)") == 1
    assert "± " in text
    html = matrix_html(matrix)
    assert "&lt;b&gt;1 (baseline)" in html
    assert "<b>1" not in html
    assert html.count("<tr>") == 1 + len(matrix.lines)
