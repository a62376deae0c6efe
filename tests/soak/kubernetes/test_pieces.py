"""The soak notices what it is for; the soak itself is `python -m tests.soak.kubernetes`."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.soak.kubernetes.chaos import PARTS, Chaos, Part, Strike, storms
from tests.soak.kubernetes.compare import (
    RunTruth,
    Shown,
    Truth,
    journal_faults,
    truth_of_run,
    wrong_states,
)
from tests.soak.kubernetes.figures import Sample, growth, quarters

RUNNING = RunTruth(frozenset({"RUNNING"}), step=9, old_step=4)
SO = Truth("ready", 2, {"a": RUNNING})


def end(state: str, *, time_s: float = 2.0) -> dict[str, Any]:
    return {"kind": "end", "state": state, "time_s": time_s}


def step(number: int) -> dict[str, Any]:
    return {"kind": "step", "step": number, "time_s": float(number)}


@pytest.mark.parametrize(
    ("events", "job", "states", "steps"),
    [
        ([], None, {"PENDING", "FAILED"}, (0, 0)),
        ([], "PENDING", {"PENDING", "QUEUED"}, (0, 0)),
        ([], "RUNNING", {"PENDING", "QUEUED", "RUNNING"}, (0, 0)),
        ([step(1), step(2), step(3)], "RUNNING", {"RUNNING"}, (3, 2)),
        ([step(3)], "RUNNING", {"PENDING", "QUEUED", "RUNNING"}, (3, 0)),
        ([step(1), end("SUCCEEDED")], "RUNNING", {"SUCCEEDED"}, (1, 1)),
        ([step(1), end("SUCCEEDED", time_s=3.0)], "RUNNING", {"SUCCEEDED", "RUNNING"}, (1, 1)),
        ([step(1)], "FAILED", {"FAILED"}, (1, 1)),
        ([], "STOPPED", {"STOPPED", "FAILED"}, (0, 0)),
    ],
)
def test_what_a_run_may_be_called(
    events: list[dict[str, Any]], job: str | None, states: set[str], steps: tuple[int, int]
) -> None:
    assert truth_of_run(events, job, now_s=2.5) == RunTruth(frozenset(states), *steps)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ({"state": "starting"}, "the cluster is ready and shown as starting"),
        ({"state": None, "message": "no answer"}, "shown as None: no answer"),
        ({"workers": 1}, "2 workers are ready, 1 are shown"),
        ({"message": "Last known state, 9 s old: it is"}, "is an old one"),
        ({"runs": {"a": ("FAILED", 7)}}, "a is RUNNING and shown as FAILED"),
        ({"runs": {"a": ("RUNNING", 3)}}, "steps up to 4 to 9 and is shown at 3"),
        ({"runs": {"a": ("RUNNING", 10)}}, "is shown at 10"),
        ({"runs": {}}, "a is not shown"),
    ],
)
def test_a_wrong_state(shown: dict[str, Any], text: str) -> None:
    right: dict[str, Any] = {"state": "ready", "workers": 2, "runs": {"a": ("RUNNING", 7)}}
    assert wrong_states(Shown("client", **right), SO, SO) == []
    (found,) = wrong_states(Shown("client", **right | shown), SO, SO)
    assert found.startswith("client: ")
    assert text in found


def test_what_changes_while_it_is_asked_for() -> None:
    later = Truth(None, 1, {"a": RunTruth(frozenset({"SUCCEEDED"}), 12, 12), "new": RUNNING})
    for shown in (
        Shown("client", "ready", 2, runs={"a": ("RUNNING", 4)}),
        Shown("client", "starting", 1, runs={"a": ("SUCCEEDED", 12)}),
    ):
        assert wrong_states(shown, SO, later) == []


def lines(*events: tuple[int, str]) -> bytes:
    """Of (number, kind); a step has its number."""
    made = ({"seq": seq, "kind": kind, "step": seq} for seq, kind in events)
    return b"".join(json.dumps(one).encode() + b"\n" for one in made)


WHOLE = {"1-worker-0.jsonl": lines((1, "step"), (2, "step"), (3, "step"))}


@pytest.mark.parametrize(
    ("home", "text"),
    [
        (lines((1, "step"), (3, "step")), "lines [2] are missing"),
        (lines((1, "step"), (2, "step")), "lines [3] of 3 in the pod did not arrive"),
        (lines(*((i, "step") for i in (1, 2, 3, 3))), "lines [3] are there more than once"),
        (lines(*((i, "step") for i in (1, 2, 3, 4))), "lines [4] are not in the pod"),
        (lines((1, "step"), (2, "step"), (3, "eval")), "lines [3] are others than in the pod"),
        (lines(*((i, "step") for i in (1, 2, 3))) + b"{half\n", "1 lines are no events"),
    ],
)
def test_a_journal_that_is_not_whole(home: bytes, text: str) -> None:
    found = journal_faults({"1-worker-0.jsonl": home}, WHOLE, num_steps=None)
    assert any(text in line for line in found), found


def test_a_whole_journal() -> None:
    client = {"1-client.jsonl": lines((1, "phase"), (2, "phase"))}
    assert journal_faults(WHOLE | client, WHOLE, num_steps=3) == []
    assert journal_faults(WHOLE | client, WHOLE, num_steps=4) == ["steps are [1, 2, 3], not 1 to 4"]


def test_growth_and_quarters() -> None:
    flat = {"memory_mb": 100.0, "descriptors": 40, "sockets": 9, "threads": 12}
    made = [Sample(minute=i, **flat) for i in range(8)]
    grown = made[:6] + [Sample(minute=6, **flat | {"sockets": 30, "memory_mb": 110.0})] * 2
    assert growth(made) == []
    assert growth(grown) == ["sockets: 9 in the first quarter, 30 in the last"]
    memory, *_ = (line for line in quarters(grown) if "memory" in line)
    assert memory.split()[1:] == ["100", "100", "100", "110", "110"]


def test_the_same_storms_for_the_same_seed() -> None:
    first, again, other = ([*itertools.islice(storms(seed), 20)] for seed in (7, 7, 8))
    assert first == again
    assert first != other
    struck = [part for strikes in first for strike in strikes for part in strike.down_s]
    assert set(struck) == set(PARTS)


def test_a_storm_kills_at_once_and_ends_when_all_works() -> None:
    seen: list[tuple[str, str]] = []

    def part(name: str) -> Part:
        return Part(lambda: seen.append(("kill", name)), lambda: seen.append(("start", name)))

    def breaks() -> None:
        raise OSError("no room")

    chaos = Chaos({"API server": part("API server"), "operator": Part(lambda: None, breaks)})
    chaos.storm([Strike({"API server": 0.01, "operator": 0.0}, 0.0)])
    assert seen == [("kill", "API server"), ("start", "API server")]
    assert chaos.broken == ["the operator did not start: OSError: no room"]
    assert chaos.kills == {"API server": 1, "operator": 1}
