"""Decides what an idle guard does with a cluster, and when, from its policy and activity. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.config.models.kuberay_fields import IdlePolicy
from llmops_kernel.providers.capabilities import Act, GuardState
from llmops_kernel.providers.dashboard import Usage, is_active
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.providers.kuberay.resource.objects import Obj, created_s, dig, fields, text


@dataclass(frozen=True)
class Activity:
    """Activity of a cluster, as Ray reports it."""

    is_active: bool | None
    """None: Ray did not answer, so nothing follows from it."""
    since_s: float | None = None
    """Unix time since which nothing runs; None while something does."""
    description: str = ""
    """Readable text about what runs."""


@dataclass(frozen=True)
class GuardInput:
    """The part of a RayCluster that a guard uses."""

    policy: IdlePolicy
    began_s: float | None
    """The time of its start, or of its last resume."""
    kept_until_s: float | None = None
    idle_since_s: float | None = None
    """The time that a guard has recorded."""
    is_up: bool = True
    """False while it is suspended or being suspended; true while at least its head runs."""
    is_suspended: bool = False
    """Its workers are gone; true also while the head of a queued cluster runs."""

    @property
    def is_at_rest(self) -> bool:
        """Return whether there is nothing to suspend."""
        return self.is_suspended or not self.is_up


def policy_of(raycluster: Obj) -> IdlePolicy | None:
    """Return the policy; None for a cluster that no guard may touch."""
    reported = status.annotation(raycluster, names.IDLE)
    if not reported:
        return None
    try:
        policy = IdlePolicy.model_validate_json(reported)
    except ValueError:
        return None
    guards = policy.suspend_after_s is not None or policy.time_to_live_s is not None
    return policy if guards else None


def guard_input(raycluster: Obj) -> GuardInput | None:
    """Return the guard's input; None without a policy, and for a cluster that is being deleted."""
    policy = policy_of(raycluster)
    if policy is None or dig(raycluster, "metadata", "deletionTimestamp") is not None:
        return None
    phase = status.phase_of(raycluster)
    return GuardInput(
        policy=policy,
        began_s=status.seconds_of(raycluster, names.RESUMED_AT) or created_s(raycluster),
        kept_until_s=status.seconds_of(raycluster, names.KEPT_UNTIL),
        idle_since_s=status.seconds_of(raycluster, names.IDLE_SINCE),
        is_up=phase.head_runs or not phase.is_at_rest,
        is_suspended=phase.is_at_rest,
    )


def activity(
    jobs: Sequence[Mapping[str, Any]] | None,
    activities: Mapping[str, Any] | None,
    *,
    ready_s: float | None,
) -> Activity:
    """Compute the activity from `/api/jobs/` and `/api/component_activities`.

    `ready_s` is when the head became ready.
    """
    if jobs is None:
        return Activity(None)
    running = [job for job in jobs if is_active(job)]
    if running:
        return Activity(True, description=_text(running))
    times = [_end_s(job) for job in jobs]
    for name, reported in (activities or {}).items():
        state = text(reported, "is_active")
        if state == "ERROR":
            return Activity(None)
        if state == "ACTIVE":
            return Activity(True, description=text(reported, "reason") or f"{name} is active")
        times.append(_number(fields(reported).get("last_activity_at")))
    times_known = [at_s for at_s in [*times, ready_s] if at_s is not None]
    return Activity(False, since_s=max(times_known)) if times_known else Activity(None)


def guard_times(raycluster: Obj, usage: Usage | None, *, now_s: float) -> dict[str, float | None]:
    """Return `suspends_at_s` and `ends_at_s` of a cluster from known data, without asking Ray."""
    cluster = guard_input(raycluster)
    if cluster is None:
        return {}
    now = Activity(None)
    if usage is not None and usage.jobs_running:
        now = Activity(True)
    elif usage is not None and usage.idle_s is not None:
        now = Activity(False, since_s=now_s - usage.idle_s)
    state = decide(cluster, now, now_s=now_s)
    return {"suspends_at_s": state.suspends_at_s, "ends_at_s": state.ends_at_s}


def decide(cluster: GuardInput, now: Activity, *, now_s: float) -> GuardState:
    """Return what to do now, and the countdown to what comes next."""
    policy = cluster.policy
    kept_until = cluster.kept_until_s
    kept_until = kept_until if kept_until is not None and kept_until > now_s else None
    idle_since = _idle_since(cluster, now)
    ends = _after(cluster.began_s, policy.time_to_live_s, kept_until)
    if policy.at_end == "suspend" and cluster.is_at_rest:
        ends = None
    after_s = None if cluster.is_at_rest else policy.suspend_after_s
    suspends = _after(idle_since, after_s, kept_until)
    state = GuardState(
        suspends_at_s=suspends, ends_at_s=ends, kept_until_s=kept_until, idle_since_s=idle_since
    )
    if ends is not None and now_s >= ends:
        return _at_end(state, cluster, now, now_s=now_s)
    if suspends is not None and now_s >= suspends and now.is_active is False:
        idle_s = now_s - (idle_since or now_s)
        return _with(state, Act.SUSPEND, f"nothing has run for {idle_s:.0f} s")
    if now.is_active is None and cluster.is_up:
        return _with(state, Act.NONE, "Ray did not report whether anything runs")
    return _with(state, Act.NONE, now.description)


def _idle_since(cluster: GuardInput, now: Activity) -> float | None:
    """Return Ray's own time; its list of ended jobs may be shorter than what was recorded."""
    if now.is_active or cluster.is_at_rest:
        return None
    times = [at_s for at_s in (now.since_s, cluster.began_s) if at_s is not None]
    if now.is_active is None:
        return cluster.idle_since_s
    return max(times, default=cluster.idle_since_s)


def _after(begin_s: float | None, wait_s: float | None, kept_s: float | None) -> float | None:
    if begin_s is None or wait_s is None:
        return None
    return max(begin_s + wait_s, kept_s or 0.0)


def _at_end(state: GuardState, cluster: GuardInput, now: Activity, *, now_s: float) -> GuardState:
    policy = cluster.policy
    over_s = now_s - (state.ends_at_s or now_s)
    if cluster.is_up and now.is_active is not False and over_s < policy.drain_s:
        left_s = policy.drain_s - over_s
        activity_text = now.description or "whatever runs on it"
        return _with(
            state,
            Act.DRAIN,
            f"its time to live has expired; {activity_text} has {left_s:.0f} s to stop",
        )
    action = Act.DELETE if policy.at_end == "delete" else Act.SUSPEND
    return _with(state, action, f"its time to live of {policy.time_to_live_s:.0f} s has expired")


def _with(state: GuardState, action: Act, reason: str) -> GuardState:
    return GuardState(
        act=action,
        why=reason,
        suspends_at_s=state.suspends_at_s,
        ends_at_s=state.ends_at_s,
        kept_until_s=state.kept_until_s,
        idle_since_s=state.idle_since_s,
    )


def _text(running: Sequence[Mapping[str, Any]]) -> str:
    drivers = sum(job.get("type") == "DRIVER" for job in running)
    jobs = len(running) - drivers
    parts = [f"{jobs} job{'' if jobs == 1 else 's'}"] if jobs else []
    if drivers:
        parts.append("1 notebook or script" if drivers == 1 else f"{drivers} notebooks or scripts")
    return f"{' and '.join(parts)} running"


def _end_s(job: Mapping[str, Any]) -> float | None:
    """Convert to seconds: Ray reports milliseconds."""
    end_ms = _number(job.get("end_time")) or _number(job.get("start_time"))
    return None if not end_ms else end_ms / 1000


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e15 else None
