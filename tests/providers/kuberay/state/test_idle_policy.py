"""When an idle guard acts: the decision, from plain values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.config.models.kuberay_fields import IdlePolicy
from llmops_kernel.providers.capabilities import Act
from llmops_kernel.providers.kuberay.state.idle_policy import (
    Activity,
    GuardInput,
    activity,
    decide,
    guard_input,
    guard_times,
)
from tests.providers.kuberay.observations import raycluster, stamp

NOW_S = 1_800_000_000.0
H = 3600.0
IDLE = IdlePolicy(suspend_after_s=2 * H)
ENDS = IdlePolicy(time_to_live_s=8 * H, drain_s=300)
DIES = IdlePolicy(time_to_live_s=8 * H, at_end="delete", drain_s=300)
BUSY = Activity(True, description="1 job running")
SILENT = Activity(None)


def idle(hours: float) -> Activity:
    return Activity(False, since_s=NOW_S - hours * H)


def cluster(policy: IdlePolicy = IDLE, *, age: float = 24.0, **kw: Any) -> GuardInput:
    return GuardInput(policy, NOW_S - age * H, **kw)


CASES: dict[str, tuple[GuardInput, Activity, Act, float | None]] = {
    "works": (cluster(), BUSY, Act.NONE, None),
    "idle for a while": (cluster(), idle(0.5), Act.NONE, NOW_S + 1.5 * H),
    "idle long enough": (cluster(), idle(2), Act.SUSPEND, NOW_S),
    "idle, kept": (cluster(kept_until_s=NOW_S + H), idle(5), Act.NONE, NOW_S + H),
    "keep is over": (cluster(kept_until_s=NOW_S - 1), idle(5), Act.SUSPEND, NOW_S - 3 * H),
    "silent: nobody acts": (cluster(idle_since_s=NOW_S - 5 * H), SILENT, Act.NONE, NOW_S - 3 * H),
    "resumed a moment ago": (cluster(age=0.1), idle(9), Act.NONE, NOW_S + 1.9 * H),
    "asleep": (cluster(is_up=False), idle(9), Act.NONE, None),
    "only its head runs": (cluster(is_suspended=True), idle(9), Act.NONE, None),
    "end, only its head runs": (cluster(ENDS, age=9, is_suspended=True), idle(1), Act.NONE, None),
    "delete, head works": (cluster(DIES, age=8, is_suspended=True), BUSY, Act.DRAIN, NOW_S),
    "lives": (cluster(ENDS, age=7), BUSY, Act.NONE, NOW_S + H),
    "end, idle": (cluster(ENDS, age=8), idle(1), Act.SUSPEND, NOW_S),
    "end, busy": (cluster(ENDS, age=8), BUSY, Act.DRAIN, NOW_S),
    "end, drained": (cluster(ENDS, age=8.01), idle(0.001), Act.SUSPEND, NOW_S - 0.01 * H),
    "end, drain is over": (cluster(ENDS, age=8.1), BUSY, Act.SUSPEND, NOW_S - 0.1 * H),
    "end, silent": (cluster(ENDS, age=8), SILENT, Act.DRAIN, NOW_S),
    "end, kept": (cluster(ENDS, age=9, kept_until_s=NOW_S + H), BUSY, Act.NONE, NOW_S + H),
    "end, delete": (cluster(DIES, age=9), idle(1), Act.DELETE, NOW_S - H),
    "end, asleep, delete": (cluster(DIES, age=9, is_up=False), idle(1), Act.DELETE, NOW_S - H),
    "end, asleep": (cluster(ENDS, age=9, is_up=False), idle(1), Act.NONE, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_done_and_when(case: tuple[GuardInput, Activity, Act, float | None]) -> None:
    given_cluster, now, act, due_s = case
    state = decide(given_cluster, now, now_s=NOW_S)
    assert state.act is act
    assert state.next_s == pytest.approx(due_s)
    assert state.why or act is Act.NONE


def test_the_drain_shows_how_long_is_left() -> None:
    state = decide(cluster(ENDS, age=8 + 100 / H), BUSY, now_s=NOW_S)
    assert state.why == "its time to live has expired; 1 job running has 200 s to stop"


@given(
    age=st.floats(0, 100),
    since=st.none() | st.floats(0, 100),
    kept=st.none() | st.floats(-100, 100),
    noted=st.none() | st.floats(0, 100),
    policy=st.sampled_from([IDLE, ENDS, DIES, IdlePolicy(suspend_after_s=1, time_to_live_s=1)]),
    is_up=st.booleans(),
    is_suspended=st.booleans(),
    now=st.sampled_from([True, False, None]),
)
def test_nobody_is_suspended_who_is_kept_or_works_within_his_time(
    age: float,
    since: float | None,
    kept: float | None,
    noted: float | None,
    policy: IdlePolicy,
    is_up: bool,
    is_suspended: bool,
    now: bool | None,
) -> None:
    began_s = NOW_S - age * H
    kept_s = None if kept is None else NOW_S + kept * H
    noted_s = None if noted is None else NOW_S - noted * H
    given_cluster = GuardInput(policy, began_s, kept_s, noted_s, is_up, is_suspended)
    since_s = None if since is None or now is not False else NOW_S - since * H
    state = decide(given_cluster, Activity(now, since_s), now_s=NOW_S)
    if kept_s is not None and kept_s > NOW_S:
        assert state.act is Act.NONE
    over = policy.time_to_live_s is not None and age * H >= policy.time_to_live_s
    if not over and now is not False:
        assert state.act is Act.NONE
    if not is_up:
        assert state.act in (Act.NONE, Act.DELETE)
    if is_suspended:
        assert state.act is not Act.SUSPEND


def job(status: str = "SUCCEEDED", *, end_s: float | None = None, kind: str = "SUBMISSION") -> Any:
    end_ms = None if end_s is None else int(end_s * 1000)
    return {"status": status, "type": kind, "end_time": end_ms}


def test_the_end_of_the_last_job_counts() -> None:
    found = activity([job(end_s=50.0), job(end_s=90.0)], {}, ready_s=10.0)
    assert found == Activity(False, since_s=90.0)


def test_a_notebook_that_nobody_submitted_is_work() -> None:
    found = activity([job("RUNNING", kind="DRIVER")], {}, ready_s=10.0)
    assert found == Activity(True, description="1 notebook or script running")


def test_a_hook_on_the_head_can_keep_it_awake() -> None:
    active = {"ide": {"is_active": "ACTIVE", "reason": "an editor is open"}}
    assert activity([], active, ready_s=1.0) == Activity(True, description="an editor is open")
    later = {"driver": {"is_active": "INACTIVE", "last_activity_at": 70.5}}
    assert activity([], later, ready_s=1.0) == Activity(False, since_s=70.5)
    assert activity([], {"ide": {"is_active": "ERROR"}}, ready_s=1.0).is_active is None


def test_silence_says_nothing() -> None:
    assert activity(None, {}, ready_s=1.0).is_active is None
    assert activity([], {}, ready_s=None).is_active is None


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x)))
def test_odd_answers_are_no_activity_and_raise_nothing(odd: Any) -> None:
    found = activity([], {"driver": odd, "x": {"last_activity_at": odd}}, ready_s=5.0)
    assert found.is_active is False


def test_a_cluster_without_a_policy_is_left_alone() -> None:
    assert guard_input(raycluster()) is None
    assert guard_input(raycluster(annotations={"llmops.dev/idle": "no json"})) is None
    assert guard_input(raycluster(annotations={"llmops.dev/idle": "{}"})) is None
    policy = IDLE.model_dump_json()
    gone = raycluster(annotations={"llmops.dev/idle": policy}, deletionTimestamp=stamp())
    assert guard_input(gone) is None


def test_the_countdown_restarts_with_a_resume() -> None:
    policy = IdlePolicy(time_to_live_s=100).model_dump_json()
    marks = {"llmops.dev/idle": policy, "llmops.dev/resumed-at": f"{NOW_S - 10:.0f}"}
    found = guard_times(raycluster(annotations=marks, age_s=5000), None, now_s=NOW_S)
    assert found["ends_at_s"] == NOW_S + 90
