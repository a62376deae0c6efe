"""The soak notices what it is for; the soak itself is a command (`python -m tests.soak`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.soak.invariants import check_run
from tests.soak.sampling import Sample, growth, slope_per_hour
from tests.soak.user import Expected, User

WHOLE: dict[str, Any] = {
    "id": "steps-1", "state": "SUCCEEDED", "message": "", "steps": [1, 2, 3], "gaps": {},
    "doubled": [], "checksum": "a",
}  # fmt: skip


def broken(tmp_path: Path, *, run: dict[str, Any] | None = None, **told: Any) -> list[str]:
    truth = tmp_path / "truth"
    truth.write_text("pid 7\nstep 1\nstep 2\nstep 3\n")
    user = User("alice", 64101, seed="0")
    check_run(user, Expected("run-1", truth, 3, **(run or {})), WHOLE | told)
    return user.broken


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"steps": [1, 3]}, "lost steps [2]"),
        ({"steps": [1, 2, 2, 3]}, "has steps twice"),
        ({"gaps": {"1-client": [4]}}, "lacks lines {'1-client': [4]}"),
        ({"doubled": ["1-worker-0.jsonl:2"]}, "has lines twice"),
        ({"state": "FAILED", "message": "why"}, "should be SUCCEEDED: why"),
        ({"run": {"checksum": "b"}}, "has changed since"),
    ],
)
def test_what_a_journal_lost_or_changed_is_reported(
    tmp_path: Path, told: dict[str, Any], text: str
) -> None:
    assert any(text in line for line in broken(tmp_path, **told))


def test_a_whole_run_is_no_fault(tmp_path: Path) -> None:
    assert broken(tmp_path) == []
    killed = {"states": {"FAILED"}}
    assert broken(tmp_path, run=killed, state="FAILED", steps=[1, 2, 3, 4]) == []


def samples(**last: float) -> list[Sample]:
    flat = {
        "processes": 20, "zombies": 0, "descriptors": 800, "memory_mb": 1000.0,
        "disk_kb_per_run": 40.0, "tmp_files": 2,
    }  # fmt: skip
    values = [flat] * 3 + [flat | last] * 3
    return [Sample(minute=float(i), **one) for i, one in enumerate(values)]  # type: ignore[arg-type]


def test_growth_is_told_from_noise() -> None:
    assert growth(samples(processes=23, memory_mb=1100)) == []
    assert growth(samples(zombies=1, tmp_files=4)) == [
        "zombies: 0 at the start, 1 at the end",
        "tmp_files: 2 at the start, 4 at the end",
    ]


def test_a_slope_is_per_hour_and_unknown_for_two_samples() -> None:
    line = [Sample(**{**vars(one), "processes": 10 + i}) for i, one in enumerate(samples())]
    assert slope_per_hour(line, "processes") == pytest.approx(60)
    assert slope_per_hour(line[:2], "processes") is None
