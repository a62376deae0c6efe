"""Events of a run as readings of gauges, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest

from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    ProcessEvent,
    ProgressEvent,
    QueueEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.metrics.run_gauges import GAUGES, MOST_VALUES, PREFIX, Reading, RunReadings
from tests.checks import run_dashboard

STEP = StepEvent(step=3, loss=2.5, mfu=0.25, tokens_per_second=100.0, values={"reward": 0.5})
START = StartEvent(num_workers=1, global_batch_size=1, device="cpu", dtype="float32", total_steps=9)
BY_NAME = {gauge.name: gauge for gauge in GAUGES}


def readings(events: Iterable[Event]) -> list[Reading]:
    run = RunReadings(submitted_s=100.0)
    return [reading for event in events for reading in run.of(event)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([STEP], [
            ("step", "", 3), ("loss", "", 2.5), ("tokens_per_second", "", 100.0),
            ("mfu_ratio", "", 0.25), ("value", "reward", 0.5),
        ]),
        ([StepEvent(step=1)], [("step", "", 1)]),
        ([EvalEvent(step=3, metrics={"eval_loss": 1.5})], [("evaluation", "eval_loss", 1.5)]),
        ([ProgressEvent(done=5, total=9, unit="rows", values={"rows_per_second": 2.0})], [
            ("done", "rows", 5), ("total", "rows", 9), ("value", "rows_per_second", 2.0),
        ]),
        ([ProcessEvent(role="worker", rank=0, warm=True)], [("warm_start", "worker", 1.0)]),
        ([PhaseEvent(name="save", state="begin", time_s=105.0),
          PhaseEvent(name="save", state="end", time_s=107.0)], [("phase_seconds", "save", 2.0)]),
        ([PhaseEvent(name="workers", state="end", time_s=107.0)], []),
        ([PhaseEvent(name="first_step", state="end", time_s=101.5)],
         [("first_step_seconds", "", 1.5)]),
        ([PhaseEvent(name="driver", state="begin", time_s=101.0), QueueEvent(state="begin"),
          QueueEvent(state="end"), EndEvent(state="FAILED")], [
            ("state", "RUNNING", 1.0), ("queued", "", 1.0), ("state", "RUNNING", 0.0),
            ("state", "QUEUED", 1.0), ("queued", "", 0.0), ("state", "QUEUED", 0.0),
            ("state", "RUNNING", 1.0), ("state", "RUNNING", 0.0), ("state", "FAILED", 1.0),
        ]),
        ([WarningEvent(message="x")], []),
    ],
)  # fmt: skip
def test_what_an_event_says(events: list[Event], expected: list[Reading]) -> None:
    assert readings(events) == [(f"llmops_run_{name}", *rest) for name, *rest in expected]


def test_each_reading_has_the_label_of_its_gauge() -> None:
    events = [
        START, STEP, ProgressEvent(done=1, total=2),
        EvalEvent(step=1, metrics={"a": 1.0}), ProcessEvent(role="driver", warm=False),
        QueueEvent(state="begin"), PhaseEvent(name="first_step", state="end", time_s=101.0),
        PhaseEvent(name="save", state="begin"), PhaseEvent(name="save", state="end"),
    ]  # fmt: skip
    for name, label, _ in readings(events):
        assert bool(BY_NAME[name].label) == bool(label), name


def test_numbers_that_a_user_names_are_no_more_than_a_bound() -> None:
    many = {f"metric-{number}": float(number) for number in range(300)}
    assert len(readings([StepEvent(step=1, values=many), EvalEvent(step=1, metrics=many)])) == (
        1 + 2 * MOST_VALUES
    )


def test_the_dashboard_is_what_its_code_makes() -> None:
    assert run_dashboard.FILE.read_text() == run_dashboard.build(), "make dashboard"


def test_the_dashboard_shows_every_gauge_but_the_bounds_of_progress() -> None:
    text = json.dumps(json.loads(run_dashboard.FILE.read_text())["panels"])
    shown = set(re.findall(rf"{PREFIX}(llmops_run_\w+)\{{", text))
    missing = set(BY_NAME) - shown
    assert missing == {"llmops_run_total_steps", "llmops_run_total", "llmops_run_warm_start"}
