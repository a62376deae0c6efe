from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    FailureEvent,
    OutputEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.runs.view import RunView
from tests.runs.events import end, evaluation, phase, restart, start, step, steps

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
    assert RunView(events).state == state
    assert RunView(reversed(events)).state == state


def test_message_comes_from_the_end_or_else_from_the_last_failure():
    failure = FailureEvent(
        error="HookError", message="boom", remedy="mend", stream=WORKER, seq=7, time_s=50
    )
    assert RunView([failure]).message == ""
    assert RunView([failure, end("FAILED")]).message == "boom"
    assert RunView([failure, end("FAILED")]).remedy == "mend"
    assert RunView([failure, end("FAILED", message="driver killed")]).message == "driver killed"
    assert RunView([failure, end("SUCCEEDED")]).message == ""


def test_restart_replaces_steps_after_the_checkpoint():
    first = [start(), *steps(1, 15)]
    died = restart(10, time_s=150, seq=5)
    again = [
        start(stream="1-worker-2", first_step=11, time_s=160),
        *steps(11, 12, stream="1-worker-2", start_s=160, loss=9.0),
    ]
    before, between, after = (
        RunView(first),
        RunView([*first, died]),
        RunView([*first, died, *again]),
    )
    assert [e.step for e in before.steps] == list(range(1, 16))
    assert between.last_step == 10
    assert [e.step for e in after.steps] == list(range(1, 13))
    assert [e.loss for e in after.steps[-2:]] == [9.0, 9.0]
    assert len(after.restarts) == 1


def test_a_new_attempt_from_the_beginning_replaces_all_steps():
    view = RunView([start(), *steps(1, 9), end("FAILED"), *submitted("2-client", 2000)])
    assert view.last_step == 9
    view.apply([start(stream="2-worker-1", first_step=1), *steps(1, 2, stream="2-worker-1")])
    assert view.last_step == 2
    assert {event.attempt for event in view.steps} == {2}


def test_evaluations_and_checkpoints_follow_the_same_rule():
    view = RunView(
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
    view = RunView(
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
    view = RunView(
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
    view = RunView([phase("data", "begin", 20, stream=WORKER, seq=1), end("FAILED", time_s=31)])
    assert [(s.end_s, s.interrupted) for s in view.phases()] == [(31, True)]
    view.apply(submitted("2-client", 2000))
    assert [s.name for s in view.phases()] == ["snapshot", "pending"]
    assert [s.name for s in view.phases(1)] == ["data"]


def test_a_span_is_never_negative_when_clocks_disagree():
    view = RunView([*submitted(at_s=10), phase("pending", "end", 3, stream=DRIVER, seq=1)])
    assert view.phases()[-1].duration_s == 0


def test_recent_figures_leave_out_each_groups_first_step():
    events = [step(1, step_time_s=60.0, mfu=0.001), *(step(n, step_time_s=0.2) for n in (2, 3))]
    assert RunView(events[:1]).step_time_s is None
    assert RunView(events[:1]).mfu is None
    assert RunView(events).step_time_s == 0.2
    assert RunView(events).mfu == 0.5
    assert RunView([step(1), step(2, mfu=None)]).mfu is None


def test_progress_and_eta():
    view = RunView([start(total=20), *steps(1, 5)])
    assert view.progress == 0.25
    last_s = view.steps[-1].time_s
    assert view.eta_s(last_s) == pytest.approx(15 * 0.1)
    assert view.eta_s(last_s + 0.05) == pytest.approx(15 * 0.1 - 0.05)
    # A stalled run does not count down.
    assert view.eta_s(last_s + 3600) == pytest.approx(14 * 0.1)
    view.apply([end("SUCCEEDED")])
    assert view.eta_s(last_s) is None


def test_progress_of_a_resumed_attempt_starts_at_its_checkpoint():
    assert RunView([]).progress is None
    assert RunView([start(total=20, first_step=11)]).progress == 0.5


def test_submit_to_first_step_of_the_newest_attempt():
    view = RunView([*submitted(at_s=90), *steps(1, 3)])
    assert view.submit_to_first_step_s == pytest.approx(11)
    view.apply(submitted("2-client", 2000))
    assert view.submit_to_first_step_s is None


def test_unknown_is_none_and_summary_is_strict_json():
    empty = RunView().summary()
    unknown = ("last_step", "total_steps", "progress", "loss", "mfu", "tokens_per_second")
    assert [empty[name] for name in unknown] == [None] * len(unknown)
    view = RunView(
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
    view = RunView(
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


def _picture(view: RunView):
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
    view = RunView()
    for low, high in zip([0, *cut], [*cut, len(events)], strict=True):
        view.apply(shuffled[low:high])
        view.apply(shuffled[low:high][:2])  # Seen again: changes nothing.
        assert view.steps is not None  # Folds between the batches.
    assert _picture(view) == _picture(RunView(events))


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
    view = RunView()
    for event in events:
        view.apply([event])
        assert view.last_step is None or view.last_step >= 1
    assert _picture(view) == _picture(RunView(events))
    numbers = [e.step for e in view.steps]
    assert numbers == list(range(1, now + 1))


def test_100_000_events_apply_in_under_a_second():
    common = {"step_time_s": 0.1, "data_wait_s": 0.0, "compute_s": 0.1, "tokens": 1}
    events = [
        StepEvent(step=n, seq=n, stream=WORKER, time_s=n, loss=1.0, **common)
        for n in range(1, 100_001)
    ]
    view = RunView()
    begin = time.process_time()
    view.apply(events)
    assert view.last_step == 100_000
    assert time.process_time() - begin < 1.0
    begin = time.process_time()
    for n in range(100_001, 100_101):
        view.apply([StepEvent(step=n, seq=n, stream=WORKER, time_s=n, **common)])
        assert view.step_time_s == 0.1
    assert time.process_time() - begin < 0.1
