from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    FailureEvent,
    OutputEvent,
    RowsEvent,
    StepEvent,
    WarningEvent,
    parse_event,
)
from llmops_kernel.metrics.flops import REJECTED_PEAK
from llmops_kernel.store.journal.training_view import ScriptView, TrainingView
from llmops_kernel.store.journal.view import Progress
from tests.store.events import end, evaluation, phase, restart, start, step, steps

CLIENT, DRIVER, WORKER = "1-client", "1-driver", "1-worker-1"


def submitted(stream: str = CLIENT, at_s: float = 10.0):
    return [
        phase("snapshot", "begin", at_s, stream=stream, seq=1),
        phase("snapshot", "end", at_s + 1, stream=stream, seq=2),
        phase("pending", "begin", at_s + 1, stream=stream, seq=3),
    ]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "PENDING"),
        (submitted(), "PENDING"),
        ([phase("runtime_env", "begin", 12, stream=DRIVER, seq=1)], "PENDING"),
        ([phase("driver", "begin", 12, stream=DRIVER, seq=1)], "RUNNING"),
        ([step(1)], "RUNNING"),
        ([*submitted(), phase("stop", "begin", 20, stream=CLIENT, seq=4)], "STOPPING"),
        ([step(1), phase("stop", "begin", 200, stream="1-observer", seq=1)], "STOPPING"),
        ([step(1), phase("stop", "begin", 200, stream=CLIENT, seq=4), end("STOPPED")], "STOPPED"),
        ([step(1), end("SUCCEEDED")], "SUCCEEDED"),
        ([step(1), end("FAILED"), *submitted("2-client", 2000)], "PENDING"),
        ([step(1), end("FAILED"), step(2, stream="2-worker-1")], "RUNNING"),
        ([step(1), end("FAILED"), end("SUCCEEDED", stream="2-driver")], "SUCCEEDED"),
        # The run's own word beats what an observer inferred, even when it comes first.
        ([end("SUCCEEDED", time_s=50), end("FAILED", stream="1-observer")], "SUCCEEDED"),
        ([step(1), end("FAILED", stream="1-observer")], "FAILED"),
    ],
)
def test_state(events, state):
    assert TrainingView(events).state == state
    assert TrainingView(reversed(events)).state == state


def test_message_comes_from_the_end_or_else_from_the_last_failure():
    failure = FailureEvent(
        error="HookError", message="boom", remedy="mend", stream=WORKER, seq=7, time_s=50
    )
    assert TrainingView([failure]).message == ""
    assert TrainingView([failure, end("FAILED")]).message == "boom"
    assert TrainingView([failure, end("FAILED")]).remedy == "mend"
    assert (
        TrainingView([failure, end("FAILED", message="driver killed")]).message == "driver killed"
    )
    assert TrainingView([failure, end("SUCCEEDED")]).message == ""


def test_restart_replaces_steps_after_the_checkpoint():
    first = [start(), *steps(1, 15)]
    died = restart(10, time_s=150, seq=5)
    again = [
        start(stream="1-worker-2", first_step=11, time_s=160),
        *steps(11, 12, stream="1-worker-2", start_s=160, loss=9.0),
    ]
    before, between, after = (
        TrainingView(first),
        TrainingView([*first, died]),
        TrainingView([*first, died, *again]),
    )
    assert [e.step for e in before.steps] == list(range(1, 16))
    assert between.last_step == 10
    assert [e.step for e in after.steps] == list(range(1, 13))
    assert [e.loss for e in after.steps[-2:]] == [9.0, 9.0]
    assert len(after.restarts) == 1


def test_a_new_attempt_from_the_beginning_replaces_all_steps():
    view = TrainingView([start(), *steps(1, 9), end("FAILED"), *submitted("2-client", 2000)])
    assert view.last_step == 9
    view.apply([start(stream="2-worker-1", first_step=1), *steps(1, 2, stream="2-worker-1")])
    assert view.last_step == 2
    assert {event.attempt for event in view.steps} == {2}


def test_rows_that_were_skipped_are_added_up_without_what_a_restart_has_undone():
    first = start(stream=WORKER, first_step=1).model_copy(update={"num_skipped": 1})
    events = [
        first,
        RowsEvent(step=10, num_skipped=2, stream=WORKER, seq=3, time_s=110),
        RowsEvent(step=15, num_skipped=4, stream=WORKER, seq=4, time_s=115),
    ]
    assert TrainingView(events).skipped_rows == 7
    resumed = first.model_copy(update={"stream": "1-worker-2", "first_step": 11})
    again = RowsEvent(step=20, num_skipped=3, stream="1-worker-2", seq=2, time_s=170)
    assert TrainingView([*events, resumed, again]).skipped_rows == 6
    assert TrainingView([]).skipped_rows == 0


def test_evaluations_and_checkpoints_follow_the_same_rule():
    view = TrainingView(
        [
            evaluation(0, stream=WORKER, seq=1, time_s=1, loss=3.0),
            evaluation(10, stream=WORKER, seq=2, time_s=110, loss=2.0),
            CheckpointEvent(step=10, path="c10", stream=WORKER, seq=3, time_s=110),
            evaluation(15, stream=WORKER, seq=4, time_s=115, loss=1.0),
            CheckpointEvent(step=15, path="c15", stream=WORKER, seq=5, time_s=115),
            restart(10, time_s=150, seq=1),
            evaluation(10, stream="1-worker-2", seq=1, time_s=160, loss=2.5),
        ]
    )
    assert [(e.step, e.metrics["loss"]) for e in view.evals] == [(0, 3.0), (10, 2.5)]
    assert [e.path for e in view.checkpoints] == ["c10"]


def test_phases_pair_across_streams_and_show_the_running_one():
    view = TrainingView(
        [
            *submitted(),
            phase("pending", "end", 14, stream=DRIVER, seq=1, detail="2 s in the queue"),
            phase("driver", "begin", 14, stream=DRIVER, seq=2),
        ]
    )
    spans = [(s.name, s.begin_s, s.end_s, s.detail) for s in view.phases()]
    assert spans == [
        ("snapshot", 10, 11, ""),
        ("pending", 11, 14, "2 s in the queue"),
        ("driver", 14, None, ""),
    ]


def test_a_dead_workers_open_phase_ends_with_the_restart():
    view = TrainingView(
        [
            phase("model_load", "begin", 20, stream=WORKER, seq=1),
            restart(0, time_s=25, seq=1),
            phase("model_load", "begin", 30, stream="1-worker-2", seq=1),
            phase("model_load", "end", 34, stream="1-worker-2", seq=2),
        ]
    )
    spans = [(s.begin_s, s.end_s, s.interrupted) for s in view.phases()]
    assert spans == [(20, 25, True), (30, 34, False)]


def test_an_open_phase_ends_with_its_attempt():
    view = TrainingView(
        [phase("data", "begin", 20, stream=WORKER, seq=1), end("FAILED", time_s=31)]
    )
    assert [(s.end_s, s.interrupted) for s in view.phases()] == [(31, True)]
    view.apply(submitted("2-client", 2000))
    assert [s.name for s in view.phases()] == ["snapshot", "pending"]
    assert [s.name for s in view.phases(1)] == ["data"]


def test_a_span_is_never_negative_when_clocks_disagree():
    view = TrainingView([*submitted(at_s=10), phase("pending", "end", 3, stream=DRIVER, seq=1)])
    assert view.phases()[-1].duration_s == 0


def test_a_run_whose_peak_was_proved_wrong_shows_no_mfu_of_earlier_steps_either():
    events = [start(peak_flops=1e9), *(step(n, mfu=0.95) for n in (1, 2, 3))]
    assert TrainingView(events).mfu == 0.95
    events.append(start(seq=9, time_s=110.0, peak_flops=None, peak_source=REJECTED_PEAK))
    assert TrainingView(events).mfu is None


def test_recent_figures_leave_out_each_groups_first_step():
    events = [step(1, step_time_s=60.0, mfu=0.001), *(step(n, step_time_s=0.2) for n in (2, 3))]
    assert TrainingView(events[:1]).step_time_s is None
    assert TrainingView(events[:1]).mfu is None
    assert TrainingView(events).step_time_s == 0.2
    assert TrainingView(events).mfu == 0.5
    assert TrainingView([step(1), step(2, mfu=None)]).mfu is None


def test_progress_and_eta():
    view = TrainingView([start(total=20), *steps(1, 5)])
    assert view.progress == Progress(5, 20, "steps")
    assert view.progress.fraction == 0.25
    last_s = view.steps[-1].time_s
    assert view.eta_s(last_s) == pytest.approx(15 * 0.1)
    assert view.eta_s(last_s + 0.05) == pytest.approx(15 * 0.1 - 0.05)
    # A stalled run does not count down.
    assert view.eta_s(last_s + 3600) == pytest.approx(14 * 0.1)
    view.apply([end("SUCCEEDED")])
    assert view.eta_s(last_s) is None


def test_progress_of_a_resumed_attempt_starts_at_its_checkpoint():
    assert TrainingView([]).progress is None
    assert TrainingView([start(total=20, first_step=11)]).progress == Progress(10, 20, "steps")


def test_submit_to_first_step_of_the_newest_attempt():
    view = TrainingView([*submitted(at_s=90), *steps(1, 3)])
    assert view.submit_to_first_step_s == pytest.approx(11)
    view.apply(submitted("2-client", 2000))
    assert view.submit_to_first_step_s is None


def test_unknown_is_none_and_summary_is_strict_json():
    empty = TrainingView().summary()
    unknown = ("last_step", "total_steps", "progress", "loss", "mfu", "tokens_per_second")
    assert [empty[name] for name in unknown] == [None] * len(unknown)
    view = TrainingView(
        [
            step(1, loss=float("nan")),
            evaluation(1, stream=WORKER, seq=2, time_s=3, eval_loss=float("nan"), accuracy=0.5),
            OutputEvent(path="out", what="adapter", stream=WORKER, seq=3),
            WarningEvent(message="w", stream=WORKER, seq=4),
        ]
    )
    assert json.loads(json.dumps(view.summary(), allow_nan=False))["num_warnings"] == 1
    assert view.best_metrics == {"accuracy": 0.5}


def test_best_metrics_know_that_a_loss_is_to_fall():
    view = TrainingView(
        [
            evaluation(0, stream=WORKER, seq=1, time_s=1, eval_loss=3.0, accuracy=0.1),
            evaluation(5, stream=WORKER, seq=2, time_s=2, eval_loss=1.0, accuracy=0.7),
            evaluation(9, stream=WORKER, seq=3, time_s=3, eval_loss=2.0, accuracy=0.6),
        ]
    )
    assert view.best_metrics == {"eval_loss": 1.0, "accuracy": 0.7}


SEQUENCES = st.lists(
    st.tuples(st.sampled_from("psSecrwE"), st.integers(0, 6), st.integers(0, 40)), max_size=12
)
STREAMS = (
    "1-client",
    "1-driver",
    "1-worker-1",
    "1-worker-2",
    "1-observer",
    "2-driver",
    "2-worker-1",
)


def _event(kind: str, number: int, time_s: int, *, stream: str, seq: int):
    match kind:
        case "p":
            name = ("pending", "driver", "data")[number % 3]
            state = "begin" if number < 4 else "end"
            return phase(name, state, time_s, stream=stream, seq=seq)
        case "s" | "S":
            return step(number + 1, stream=stream, seq=seq, time_s=time_s, loss=float(seq))
        case "e":
            return evaluation(number, stream=stream, seq=seq, time_s=time_s, loss=float(seq))
        case "r":
            return restart(number, stream=stream, seq=seq, time_s=time_s)
        case "w":
            return start(stream=stream, seq=seq, time_s=time_s, first_step=number + 1)
        case "c":
            return CheckpointEvent(
                step=number,
                path=f"c{seq}",
                stream=stream,
                seq=seq,
                time_s=time_s,
                attempt=int(stream[0]),
            )
    return end("FAILED", stream=stream, seq=seq, time_s=time_s, message=str(seq))


def _picture(view: TrainingView):
    view_steps = [(e.step, e.stream, e.seq) for e in view.steps]
    return view_steps, view.summary(), view.phases(1), view.start, view.eta_s(50.0)


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({stream: SEQUENCES for stream in STREAMS}), st.data())
def test_any_order_and_any_batches_give_the_same_view(streams, data):
    events = [
        _event(kind, number, time_s, stream=stream, seq=seq)
        for stream, parts in streams.items()
        for seq, (kind, number, time_s) in enumerate(parts, start=1)
    ]
    shuffled = data.draw(st.permutations(events))
    cut = data.draw(st.lists(st.integers(0, len(events)), max_size=6).map(sorted))
    view = TrainingView()
    for low, high in zip([0, *cut], [*cut, len(events)], strict=True):
        view.apply(shuffled[low:high])
        view.apply(shuffled[low:high][:2])  # Seen again: changes nothing.
        assert view.steps is not None  # Folds between the batches.
    assert _picture(view) == _picture(TrainingView(events))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=4), st.integers(1, 30))
def test_one_at_a_time_in_order_equals_all_at_once(restarts, total):
    """The fast path of a live follower, with restarts in between."""
    events, time_s, now = [], 0.0, 0
    for group, back in enumerate([0, *restarts], start=1):
        stream, first = f"1-worker-{group}", max(1, now - back + 1)
        if group > 1:
            events.append(restart(first - 1, time_s=time_s, seq=group))
        events.append(start(stream=stream, time_s=time_s + 0.5, first_step=first))
        for seq, number in enumerate(range(first, first + total), start=2):
            time_s += 1
            events.append(step(number, stream=stream, seq=seq, time_s=time_s))
            now = number
    view = TrainingView()
    for event in events:
        view.apply([event])
        assert view.last_step is None or view.last_step >= 1
    assert _picture(view) == _picture(TrainingView(events))
    numbers = [e.step for e in view.steps]
    assert numbers == list(range(1, now + 1))


def test_100_000_events_apply_in_under_a_second():
    common = {"step_time_s": 0.1, "data_wait_s": 0.0, "compute_s": 0.1, "tokens": 1}
    events = [
        StepEvent(step=n, seq=n, stream=WORKER, time_s=n, loss=1.0, **common)
        for n in range(1, 100_001)
    ]
    view = TrainingView()
    begin = time.process_time()
    view.apply(events)
    assert view.last_step == 100_000
    assert time.process_time() - begin < 1.0
    begin = time.process_time()
    for n in range(100_001, 100_101):
        view.apply([StepEvent(step=n, seq=n, stream=WORKER, time_s=n, **common)])
        assert view.step_time_s == 0.1
    assert time.process_time() - begin < 0.1


def test_a_restart_from_the_beginning_keeps_the_last_known_step_until_a_new_one():
    view = TrainingView([start(), *steps(1, 9), restart(0, time_s=150, seq=5)])
    assert (view.last_step, view.loss) == (9, pytest.approx(1 / 9))
    assert (view.is_outdated, view.reported_by) == (True, 1)
    view.apply([start(stream="1-worker-2", first_step=1, time_s=160)])
    assert (view.last_step, view.progress) == (9, Progress(9, 20, "steps"))
    assert view.eta_s(170.0) is None
    view.apply(steps(1, 2, stream="1-worker-2", start_s=160))
    assert [event.step for event in view.steps] == [1, 2]
    assert not view.is_outdated


def test_a_new_attempt_that_has_reported_nothing_keeps_the_last_known_step_and_its_attempt():
    lost = [start(), *steps(1, 9), restart(0, time_s=150, seq=5), end("FAILED", time_s=200)]
    view = TrainingView(lost)
    assert (view.state, view.last_step) == ("FAILED", 9)
    view.apply([*submitted("2-client", 2000), start(stream="2-worker-1", first_step=1)])
    assert (view.attempt, view.last_step, view.reported_by) == (2, 9, 1)
    assert view.is_outdated
    view.apply(steps(1, 1, stream="2-worker-1"))
    assert (view.last_step, view.reported_by, view.is_outdated) == (1, 2, False)


@pytest.mark.parametrize(
    ("losses", "loss", "since"),
    [
        ([5.0, 4.0], 4.0, None),
        ([5.0, math.nan, math.nan], math.nan, 2),
        ([math.nan, 4.0, math.nan, None, math.nan], math.nan, 3),
        ([5.0, math.nan, 4.0], 4.0, None),
        ([5.0, math.inf], math.inf, 2),
        ([5.0, math.nan, None], math.nan, 2),
    ],
)
def test_a_diverged_loss_is_the_current_one_since_its_first_step(losses, loss, since):
    events = [step(number, loss=value) for number, value in enumerate(losses, start=1)]
    for view in (TrainingView(events), TrainingView(events[:1])):
        for event in events:
            view.apply([event])
        assert view.loss == pytest.approx(loss, nan_ok=True)
        assert view.nan_since == since
    json.dumps(view.summary(), allow_nan=False)


def test_nan_survives_the_journal():
    line = step(3, loss=math.nan).model_dump_json()
    view = TrainingView([step(1), step(2), parse_event(line)])
    assert math.isnan(view.loss)
    assert view.nan_since == 3


@pytest.mark.parametrize(("state", "interrupted"), [("SUCCEEDED", False), ("FAILED", True)])
def test_a_script_that_reports_no_step_has_no_first_step(state: str, interrupted: bool) -> None:
    events = [
        phase("first_step", "begin", 12.0, stream=DRIVER, seq=1),
        end(state, time_s=15.0, stream=DRIVER, seq=2),
    ]
    [span] = ScriptView(events, kind="script").phases()
    assert (span.name, span.duration_s, span.interrupted) == ("script", 3.0, interrupted)
    [span] = TrainingView(events, kind="train").phases()
    assert (span.name, span.interrupted) == ("first_step", True)
