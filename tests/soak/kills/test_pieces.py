"""The soak notices what it is for; the soak itself is `python -m tests.soak.kills`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.soak.kills.truth import (
    RunOnDisk,
    journal_faults,
    read_run,
    reported_steps,
    row_faults,
    state_faults,
)
from tests.soak.kills.victims import VICTIMS, order

Lines = dict[str, list[dict[str, Any]]]


def steps(*numbers: int, attempt: int = 1, saves: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """A worker's lines: its steps, each checkpoint after the step of its number."""
    found: list[dict[str, Any]] = []
    for number in numbers:
        found.append({"kind": "step", "step": number})
        if number in saves:
            found.append({"kind": "checkpoint", "step": number})
    return [
        {"seq": seq, "attempt": attempt, "time_s": float(seq), **one}
        for seq, one in enumerate(found, 1)
    ]


def run_of(streams: Lines, *, attempts: int = 1) -> RunOnDisk:
    return RunOnDisk("train-1", tuple(f"train-1-{n}" for n in range(1, attempts + 1)), streams)


RETRIED: Lines = {
    "1-worker-1": steps(1, 2, 3, 4, 5, 6, 7, saves=(5,)),
    "2-worker-1": steps(6, 7, 8, 9, attempt=2),
    "2-worker-2": steps(6, 7, 8, 9, 10, 11, attempt=2),
}


def test_a_run_that_goes_on_from_its_checkpoint_is_whole() -> None:
    run = run_of(RETRIED, attempts=2)
    assert journal_faults(run, every_steps=5, reported=[1, 5, 7, 11]) == []
    # The checkpoint was whole, and its writer was killed before it wrote the line.
    unwritten = {"1-worker-1": steps(1, 2, 3, 4, 5, 6), "1-worker-2": steps(6, 7)}
    assert journal_faults(run_of(unwritten), every_steps=5) == []


@pytest.mark.parametrize(
    ("streams", "text"),
    [
        ({"1-worker-1": steps(1, 2, 2)}, "its steps are [1, 2, 2]"),
        ({"1-worker-1": steps(1, 2, 4)}, "its steps are [1, 2, 4]"),
        ({**RETRIED, "2-worker-2": steps(5, 6)}, "begins with step 5"),
        ({**RETRIED, "2-worker-2": steps(1, 2)}, "begins with step 1"),
        ({**RETRIED, "2-worker-2": steps(11, 12)}, "begins with step 11"),
        ({"1-worker-1": [*steps(1, 2), steps(1)[0]]}, "lines [1] are there more than once"),
        ({"1-worker-1": steps(1, 2, 3)[::2]}, "lines [2] are missing"),
        ({"1-worker-1": steps(1, 2)}, "steps [3] were made and are not in the journal"),
    ],
)
def test_what_a_journal_lost_or_doubled_is_reported(streams: Lines, text: str) -> None:
    found = journal_faults(run_of(streams), every_steps=5, reported=[1, 3])
    assert any(text in line for line in found), found


def test_files_of_a_run_are_read_with_their_end(tmp_path: Path) -> None:
    folder = tmp_path / "train-1"
    (folder / "journal").mkdir(parents=True)
    (folder / "attempts.jsonl").write_text('{"submission_id": "train-1-1"}\n')
    end = {"seq": 1, "attempt": 1, "time_s": 9.0, "kind": "end", "state": "FAILED"}
    (folder / "journal" / "1-observer.jsonl").write_text(json.dumps(end) + "\n{broken\n{half")
    run = read_run(folder)
    assert (run.end, run.unreadable) == ("FAILED", 1)
    with (folder / "attempts.jsonl").open("a") as file:
        file.write('{"submission_id": "train-1-2"}\n')
    assert read_run(folder).end is None, "its second attempt has not ended"


def test_steps_that_the_code_has_made_are_found_by_run(tmp_path: Path) -> None:
    truth = tmp_path / "truth.txt"
    truth.write_text(
        "/h/runs/a-1/checkpoints 7 1\n/h/runs/a-1/checkpoints 7 2\n/h/runs/b-2/c 8 1\n/h"
    )
    assert reported_steps(truth) == {"a-1": {1, 2}, "b-2": {1}}


def scored(folder: Path, ids: list[int]) -> RunOnDisk:
    folder.mkdir()
    rows = [{"id": f"r{n}", "text": f"t{n}", "output": f"t{n}", "error": None} for n in ids]
    schema = pa.schema([(name, pa.string()) for name in ("id", "text", "output", "error")])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "part-00000.parquet")
    (folder / "_SUCCESS").touch()
    event = {"kind": "output", "path": str(folder), "seq": 1, "attempt": 1, "time_s": 1.0}
    return RunOnDisk("score-1", ("score-1-1",), {"1-driver": [event]})


def test_rows_that_are_lost_or_doubled_are_reported(tmp_path: Path) -> None:
    assert row_faults(scored(tmp_path / "a", [0, 1, 2]), rows=3, is_echo=True) == []
    (lost,) = row_faults(scored(tmp_path / "b", [0, 2]), rows=3, is_echo=True)
    assert "1 of 3 rows are lost: ['r1']" in lost
    (twice,) = row_faults(scored(tmp_path / "c", [0, 1, 2, 2]), rows=3, is_echo=True)
    assert "1 rows are there twice: ['r2']" in twice


@pytest.mark.parametrize(
    ("end", "has_driver", "shown", "is_true"),
    [
        ("FAILED", False, "FAILED", True),
        ("FAILED", False, "RUNNING", False),
        (None, True, "QUEUED", True),
        (None, True, "FAILED", False),
        (None, False, "RUNNING", False),
        (None, False, "FAILED", True),
        (None, True, None, False),
    ],
)
def test_a_state_is_compared_with_the_files_and_the_driver(
    end: str | None, has_driver: bool, shown: str | None, is_true: bool
) -> None:
    event = {"kind": "end", "state": end, "attempt": 1, "time_s": 1.0, "seq": 1}
    run = run_of({"1-driver": [event] if end else []})
    states = {} if shown is None else {"train-1": shown}
    found = state_faults(run, states, has_driver=has_driver, who="runs")
    assert (found == []) is is_true, found


def test_the_order_of_the_victims_follows_the_seed_and_leaves_none_out() -> None:
    first = order(20, random.Random(7))
    assert first == order(20, random.Random(7)) != order(20, random.Random(8))
    assert set(first[:9]) == set(first[9:18]) == set(VICTIMS)
