"""The profiles of a run as a panel and a terminal show them."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.metrics.events import OutputEvent, PhaseEvent, ProfileEvent, StepEvent
from llmops_kernel.metrics.profile import PHASE, REQUEST_PHASE, CallTime, OperatorTime
from llmops_kernel.metrics.system import StackGroup
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.profile import overhead, panel_profiles, path_of, profile_detail
from tests.store.events import end, restart, step

WORKER, OBSERVER = "1-worker-1", "1-observer"
ASKED = "Waiting for the run to profile the next 3 steps…"
RUNNING = "Profiling steps 5 to 7…"


def profile(first: int = 5, last: int = 7, **more: Any) -> ProfileEvent:
    fields = {"stream": WORKER, "seq": 100 + first, "time_s": 100.0 + first, "path": "/pod/5-7"}
    return ProfileEvent(first_step=first, last_step=last, **{**fields, **more})


def request(state: str, at_s: float, stream: str = OBSERVER) -> PhaseEvent:
    detail = "the next 3 steps" if state == "begin" else ""
    return PhaseEvent(
        name=REQUEST_PHASE, state=state, detail=detail, time_s=at_s, stream=stream, seq=int(at_s)
    )


def running(state: str, at_s: float) -> PhaseEvent:
    detail = "steps 5 to 7" if state == "begin" else ""
    return PhaseEvent(
        name=PHASE, state=state, detail=detail, time_s=at_s, stream=WORKER, seq=int(at_s)
    )


TAKEN = [running("begin", 12), request("end", 13, WORKER)]


@pytest.mark.parametrize(
    ("events", "now"),
    [
        ([], ""),
        ([request("begin", 11)], ASKED),
        ([request("begin", 11), request("end", 12)], ""),
        ([request("begin", 11), *TAKEN], RUNNING),
        # The client's clock is ahead of the cluster's; two clients ask at once.
        ([request("begin", 19), *TAKEN, running("end", 14)], ""),
        ([request("begin", 10), request("begin", 11), *TAKEN, running("end", 14)], ""),
        ([*TAKEN, restart(2, time_s=14.0, seq=900)], ""),
        ([running("begin", 12), end("SUCCEEDED", time_s=14.0)], ""),
    ],
)
def test_what_is_profiled_now(events: list[Any], now: str) -> None:
    assert (
        panel_profiles(TrainingView([step(1, time_s=10.0, seq=901), *events], kind="train")).now
        == now
    )


@pytest.mark.parametrize(("kind", "can"), [("train", True), ("script", True), ("score", False)])
def test_a_running_run_of_a_kind_with_steps_can_be_profiled(kind: str, can: bool) -> None:
    assert panel_profiles(TrainingView([step(1, time_s=10.0)], kind=kind)).can == can
    ended = TrainingView([step(1, time_s=10.0), end("SUCCEEDED", time_s=20.0)], kind=kind)
    assert not panel_profiles(ended).can
    waiting = TrainingView([request("begin", 11)], kind=kind)
    assert waiting.state == "PENDING"  # A request is no sign of a driver.


def test_an_overhead_is_told_beside_what_steps_take() -> None:
    steps = [
        StepEvent(
            step=n,
            step_time_s=9.0 if n == 1 else 0.2,
            profiled=n > 4 or None,
            stream=WORKER,
            seq=n,
            time_s=float(n),
        )
        for n in range(1, 5)
    ]
    more = {"step_time_s": 0.3, "profiled": True}
    slow = [steps[0].model_copy(update={"step": n, "seq": n, **more}) for n in range(5, 8)]
    view = TrainingView([*steps, *slow])
    event = profile(time_in_steps_s=0.9, writing_s=0.5)
    assert "300 ms each, +50% to the 200 ms of steps before" in overhead(view, event)
    assert "each" not in overhead(TrainingView([]), event)


def test_the_newest_operators_and_one_profile_in_full() -> None:
    operator = OperatorTime(name="aten::mm", calls=1200, self_cpu_s=0.0125)
    on_gpu = operator.model_copy(update={"self_device_s": None, "name": "aten::add"})
    tree = CallTime(name="thread 1", calls=1, cpu_s=1.0, self_cpu_s=0.0)
    group = StackGroup(ranks=(0, 1), state="code", place="a.py:3 (f)", frames=("a.py:3 (f)",))
    copy = OutputEvent(
        what="profile", path="/home/5-7", copied_from="/pod/5-7", stream=OBSERVER, seq=1
    )
    first = profile(2, 2, operators=(on_gpu.model_copy(update={"self_device_s": 0.5}), on_gpu))
    view = TrainingView(
        [first, profile(operators=(operator,), calls=(tree,), groups=(group,)), copy]
    )
    shown = panel_profiles(view)
    assert [(one.number, one.title, one.first, one.last) for one in shown.done] == [
        (0, "step 2", 2, 2),
        (1, "steps 5 to 7", 5, 7),
    ]
    assert shown.operators.rows == [["aten::mm", "1,200", "12.50"]]
    assert path_of(view, view.profiles[1]) == "/home/5-7"
    detail = profile_detail(view, 1)
    assert detail is not None
    assert (detail.calls, detail.groups.rows) == ([tree], [["0, 1", "code", "a.py:3 (f)"]])
    assert "a.py:3 (f)" in detail.stacks
    other = profile_detail(view, 0)
    assert other is not None
    assert other.operators.rows[1][2:] == ["–", "12.50"]
    assert (profile_detail(view, 2), profile_detail(view, -1)) == (None, None)
