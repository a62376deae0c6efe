"""Compares what a client shows with what is so, and its journals with those of the pods. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_OF_JOB = {
    "PENDING": frozenset({"PENDING", "QUEUED"}),
    "RUNNING": frozenset({"PENDING", "QUEUED", "RUNNING"}),
}
"""What a run may be called while Ray's job is that, before its first step."""


@dataclass(frozen=True)
class RunTruth:
    """One run, as the pods have it."""

    states: frozenset[str]
    """What it may be called."""
    step: int = 0
    """The last one in the journal."""
    old_step: int = 0
    """The last one that was written some time ago, so that it must be shown."""


@dataclass(frozen=True)
class Truth:
    """What was so at one moment."""

    state: str | None
    """Of the cluster; None: on the way to another one."""
    workers: int | None
    runs: Mapping[str, RunTruth] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """What one client shows at one moment."""

    who: str
    state: str | None
    """Of the cluster; None: there is none."""
    workers: int | None
    message: str = ""
    runs: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    """State and last step."""


def truth_of_run(events: list[dict[str, Any]], job: str | None, *, now_s: float) -> RunTruth:
    """From its journal in the pods and from its job's status in Ray; None: Ray has no such job.

    What was written after `now_s` need not be shown yet.
    """
    steps = [(one["step"], one["time_s"]) for one in events if one["kind"] == "step"]
    last = max((step for step, _ in steps), default=0)
    old = max((step for step, time_s in steps if time_s < now_s), default=0)
    ends = [(str(one["state"]), one["time_s"]) for one in events if one["kind"] == "end"]
    if ends:
        state, time_s = ends[-1]
        states = frozenset({state} if time_s < now_s else {state, "RUNNING"})
    elif job is None:
        states = frozenset({"PENDING", "FAILED"})  # It is being submitted, or never was.
    elif job in TERMINAL:
        states = frozenset({job, "FAILED"})
    else:
        states = frozenset({"RUNNING"}) if old else _OF_JOB[job]
    return RunTruth(states, last, old)


def wrong_states(shown: Shown, before: Truth, after: Truth) -> list[str]:
    """What is shown and was neither so before nor after it was asked for."""
    found = []
    if None not in (before.state, after.state) and shown.state not in (before.state, after.state):
        found.append(f"the cluster is {after.state} and shown as {shown.state}: {shown.message}")
    if shown.workers not in (before.workers, after.workers):
        found.append(f"{after.workers} workers are ready, {shown.workers} are shown")
    if shown.message.startswith("Last known state"):
        found.append(f"the cluster's state is an old one: {shown.message}")
    for run_id, now in after.runs.items():
        then = before.runs.get(run_id)
        if then is not None:
            found += _wrong_run(run_id, shown.runs.get(run_id), then, now)
    return [f"{shown.who}: {text}" for text in found]


def _wrong_run(
    run_id: str, shown: tuple[str, int | None] | None, before: RunTruth, after: RunTruth
) -> list[str]:
    if shown is None:
        return [f"{run_id} is not shown"]
    state, step = shown[0], shown[1] or 0
    found = []
    states = before.states | after.states
    if state not in states:
        found.append(f"{run_id} is {' or '.join(sorted(states))} and shown as {state}")
    if not before.old_step <= step <= after.step:
        steps = f"{before.old_step} to {after.step}"
        found.append(f"{run_id} has written steps up to {steps} and is shown at {step}")
    return found


def journal_faults(
    home: Mapping[str, bytes], pods: Mapping[str, bytes], *, num_steps: int | None
) -> list[str]:
    """Compare the files of a run that has ended; `num_steps` of one that succeeded."""
    found: list[str] = []
    steps: list[int] = []
    for name, data in sorted(home.items()):
        lines, unreadable = _numbered(data)
        numbers = Counter(seq for seq, _ in lines)
        found += [f"{name}: {unreadable} lines are no events"] if unreadable else []
        if twice := sorted(seq for seq, times in numbers.items() if times > 1):
            found.append(f"{name}: lines {twice} are there more than once")
        if lost := sorted(set(range(1, max(numbers, default=0) + 1)) - numbers.keys()):
            found.append(f"{name}: lines {lost} are missing")
        steps += [one["step"] for _, one in lines if one["kind"] == "step"]
    for name, data in sorted(pods.items()):
        theirs, ours = dict(_numbered(data)[0]), dict(_numbered(home.get(name, b""))[0])
        if lost := sorted(theirs.keys() - ours.keys()):
            found.append(f"{name}: lines {lost} of {len(theirs)} in the pod did not arrive")
        other = sorted(seq for seq in theirs.keys() & ours.keys() if theirs[seq] != ours[seq])
        found += [f"{name}: lines {other} are others than in the pod"] if other else []
        if more := sorted(ours.keys() - theirs.keys()):
            found.append(f"{name}: lines {more} are not in the pod")
    if num_steps is not None and sorted(steps) != [*range(1, num_steps + 1)]:
        found.append(f"steps are {sorted(steps)}, not 1 to {num_steps}")
    return found


def events_in(data: bytes) -> list[dict[str, Any]]:
    """All whole lines that are events."""
    return [event for _, event in _numbered(data)[0]]


def _numbered(data: bytes) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """(number, event) of each whole line, and how many lines are no events."""
    found, unreadable = [], 0
    for line in filter(None, data[: data.rfind(b"\n") + 1].split(b"\n")):
        try:
            event = json.loads(line)
            found.append((int(event["seq"]), event))
        except (ValueError, KeyError, TypeError):
            unreadable += 1
    return found, unreadable
