"""The names and numbers that trackers get of each event."""

from __future__ import annotations

import math

from llmops_kernel.metrics.events import EvalEvent, ProgressEvent, StepEvent
from llmops_kernel.trackers.rows import Rows, flat
from tests.store.events import start, step


def test_a_step_has_its_measured_numbers_under_their_names() -> None:
    event = StepEvent(step=3, loss=0.5, mfu=0.25, tokens_per_second=90.0, values={"margin": 2.0})
    row = Rows("train").of(event)
    assert row is not None
    assert row.step == 3
    assert row.numbers == {
        "train/loss": 0.5,
        "train/mfu": 0.25,
        "train/tokens_per_second": 90.0,
        "train/margin": 2.0,
    }


def test_a_loss_that_is_not_a_number_is_sent_as_such() -> None:
    row = Rows("script").of(StepEvent(step=1, loss=math.nan))
    assert row is not None
    assert math.isnan(row.numbers["train/loss"])


def test_an_evaluation_has_its_metrics_and_whole_samples() -> None:
    rows = Rows("train")
    texts = {"row": "1", "prompt": "Soup?", "reference": "vegan"}
    first = EvalEvent(
        stream="1-worker-1",
        seq=1,
        step=2,
        metrics={"eval_loss": 0.4, "bleu": 7.0},
        num_rows=8,
        samples=({**texts, "prediction": "meat"},),
    )
    row = rows.of(first)
    assert row is not None
    assert row.numbers == {"eval/loss": 0.4, "eval/bleu": 7.0, "eval/rows": 8.0}
    # The journal has prompt and reference of a row once.
    later = first.model_copy(
        update={"seq": 2, "step": 4, "samples": ({"row": "1", "prediction": "vegan"},)}
    )
    row = rows.of(later)
    assert row is not None
    assert row.samples is not None
    assert [dict(zip(row.samples.columns, line, strict=True)) for line in row.samples.rows] == [
        {**texts, "prediction": "vegan"}
    ]


def test_what_a_restart_repeats_is_sent_once() -> None:
    rows = Rows("train")
    before = [step(number) for number in (1, 2, 3)]
    again = [step(number, stream="1-worker-2") for number in (3, 4)]
    sent = [row.step for event in (*before, *again) if (row := rows.of(event)) is not None]
    assert sent == [1, 2, 3, 4]
    evaluation = EvalEvent(step=3, metrics={"eval_loss": 0.4})
    assert rows.of(evaluation) is not None
    assert rows.of(evaluation.model_copy(update={"stream": "1-worker-2"})) is None


def test_a_scoring_has_its_rows_as_steps() -> None:
    rows = Rows("score")
    row = rows.of(ProgressEvent(done=40, total=50, values={"errors": 1.0}))
    assert row is not None
    assert (row.step, row.numbers) == (40, {"score/rows": 40.0, "score/errors": 1.0})
    row = rows.of(EvalEvent(step=50, metrics={"exact_match": 0.75}, num_rows=50))
    assert row is not None
    assert row.numbers == {"score/exact_match": 0.75}


def test_how_far_an_evaluation_is_is_no_number_of_a_training() -> None:
    rows = Rows("train")
    assert rows.of(start()) is not None
    assert rows.of(ProgressEvent(done=40)) is None


def test_the_start_says_on_what_it_runs() -> None:
    row = Rows("train").of(start(versions={"torch": "2.13"}, hosts=("a", "b")))
    assert row is not None
    assert row.facts["device"] == "cpu"
    assert (row.facts["versions"], row.facts["hosts"]) == ("torch 2.13", "a, b")
    assert "peak_flops" not in row.facts  # Not known.


def test_a_config_is_flat() -> None:
    config = {"name": "a", "optimizer": {"learning_rate": 0.1, "betas": [1, 2]}, "empty": {}}
    assert dict(flat(config)) == {
        "name": "a",
        "optimizer.learning_rate": "0.1",
        "optimizer.betas": "[1, 2]",
        "empty": "{}",
    }
