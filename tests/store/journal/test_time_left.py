"""The time left counts what is still to come, and says where it does not know how long it takes."""

from __future__ import annotations

import time

import pytest

from llmops_kernel.metrics.events import AnyEvent, CheckpointEvent, EvalEvent, PhaseEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.whole_run import Repeated, TimeLeft
from llmops_kernel.views.snapshot import eta_text
from llmops_kernel.views.static_run import one_line
from tests.store.events import end, start, step

WORKER = "1-worker-1"
EVALUATION_S, SAVE_S = 30.0, 4.0


class Simulated:
    """A training whose true time is known: it is what is left of the same run played to its end."""

    def __init__(self, *, evaluate_every: int = 0, save_every: int = 0, **plan: object) -> None:
        self.events: list[AnyEvent] = [start(total=100, **plan)]
        self._every, self._save_every = evaluate_every, save_every
        self.now_s = 100.0

    def until(self, last: int) -> Simulated:
        for number in range(1, last + 1):
            self.now_s += 1.0
            self._add(step(number, step_time_s=1.0, time_s=self.now_s))
            if self._every and number % self._every == 0:
                self._evaluate(number)
            if self._save_every and number % self._save_every == 0 and number < 100:
                self._save(number)
        return self

    def _evaluate(self, number: int) -> None:
        self.now_s += EVALUATION_S
        self._add(
            EvalEvent(
                step=number,
                metrics={"eval_loss": 1.0},
                duration_s=EVALUATION_S,
                stream=WORKER,
                time_s=self.now_s,
            )
        )

    def _save(self, number: int) -> None:
        self.now_s += SAVE_S
        self._add(
            CheckpointEvent(
                step=number, path="c", duration_s=SAVE_S, stream=WORKER, time_s=self.now_s
            )
        )

    def _add(self, event: AnyEvent) -> None:
        self.events.append(event.model_copy(update={"seq": len(self.events) + 1}))

    @property
    def left(self) -> TimeLeft | None:
        return TrainingView(self.events).time_left(self.now_s)


@pytest.mark.parametrize("at", [10, 50, 55, 95])
@pytest.mark.parametrize("every", [10, 20])
def test_evaluations_to_come_are_counted_also_where_the_run_did_not_say_how_many(
    every: int, at: int
) -> None:
    part, whole = Simulated(evaluate_every=every), Simulated(evaluate_every=every)
    left = part.until(at).left
    true_s = whole.until(100).now_s - part.now_s
    if at < every:
        assert left == TimeLeft(true_s - 5 * EVALUATION_S)  # It has never evaluated.
    else:
        assert left == TimeLeft(pytest.approx(true_s))


def test_evaluations_and_saves_as_the_run_said_at_its_start() -> None:
    plan = {"evaluates_at_end": True}
    part = Simulated(evaluate_every=25, save_every=20, **plan).until(50)
    part.events[0] = start(total=100, evaluate_every=25, save_every=20, **plan)
    # Steps, evaluations after 75 and 100, checkpoints of 60 and 80, the output.
    assert part.left == TimeLeft(50 + 2 * EVALUATION_S + 2 * SAVE_S + SAVE_S)
    never = Simulated(evaluate_every=0).until(50)
    never.events[0] = start(total=100, evaluate_every=0, evaluates_at_end=False)
    assert never.left == TimeLeft(50.0)


@pytest.mark.parametrize(
    "plan",
    [
        {"evaluate_every": 60, "evaluates_at_end": False},
        {"evaluate_every": 0, "evaluates_at_end": True},
        {"evaluate_every": 0, "save_every": 60},
        {"evaluate_every": 0, "save_every": 0},
    ],
)
def test_what_was_never_measured_is_said_to_come_on_top(plan: dict[str, object]) -> None:
    part = Simulated().until(50)
    part.events[0] = start(total=100, **plan)
    assert part.left == TimeLeft(50.0, is_least=True)
    view = TrainingView(part.events)
    assert eta_text(view, now_s=part.now_s) == "at least 50.0 s left"
    assert one_line(view, now_s=part.now_s).endswith(", at least 50.0 s left")


def test_what_is_under_way_counts_down_as_long_as_it_takes_usually() -> None:
    part = Simulated(evaluate_every=10).until(50)
    part._add(step(51, step_time_s=1.0, time_s=part.now_s + 1))
    part._add(PhaseEvent(name="evaluate", state="begin", stream=WORKER, time_s=part.now_s + 1))
    view = TrainingView(part.events)
    full_s = 49 + 5 * EVALUATION_S
    assert view.eta_s(part.now_s + 1 + 12) == pytest.approx(full_s - 12)
    assert view.eta_s(part.now_s + 1 + 500) == pytest.approx(full_s - EVALUATION_S)


def test_a_long_run_costs_a_screen_no_more_than_a_short_one() -> None:
    many = Repeated(done=(10, 20), took_s=(2.0, 2.0), every=1)
    begin_s = time.perf_counter()
    assert many.left(15, 10**9) == TimeLeft((10**9 - 16) * 2.0)  # 15 to 999,999,999 without 20.
    assert time.perf_counter() - begin_s < 0.1


def test_after_the_last_step_its_evaluation_is_left_and_after_the_end_nothing() -> None:
    part = Simulated(evaluate_every=10).until(99)
    part._add(step(100, step_time_s=1.0, time_s=part.now_s + 1))
    view = TrainingView(part.events)
    assert view.eta_s(part.now_s + 1) == pytest.approx(EVALUATION_S)
    assert TrainingView([*part.events, end("SUCCEEDED")]).time_left(part.now_s) is None
    steps_only = Simulated().until(100)
    assert steps_only.left is None


def test_a_resumed_run_does_not_make_up_for_evaluations_before_its_checkpoint() -> None:
    first = Simulated(evaluate_every=10).until(50)
    first.events += [
        start(stream="2-worker-1", total=100, first_step=51, time_s=400.0),
        *[
            step(n, stream="2-worker-1", seq=n, step_time_s=1.0, time_s=400.0 + n)
            for n in (51, 52, 53)
        ],
    ]
    left = TrainingView(first.events).time_left(453.0)
    assert left == TimeLeft(pytest.approx(47 + 5 * EVALUATION_S))
