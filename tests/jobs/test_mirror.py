"""Copying journal lines: numbers without parsing, each line once, half lines closed off."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.jobs.mirror import _LocalFile
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.journal.journal import numbered_lines, read_lines
from tests.store.events import end, evaluation, phase, step

EVENTS = [
    step(1),
    step(2, loss=math.nan, seq=2),
    evaluation(2, stream="1-worker-1", seq=3, time_s=1.0, eval_loss=2.0),
    FailureEvent(error="E", message="a brace } in a text", stream="1-driver", seq=4),
    phase("data", "end", 3.0, stream="1-driver", seq=5, detail="{x}"),
    end("FAILED", seq=6, message="kill {9}"),
]
LINES = [event.model_dump_json(exclude_none=True).encode() for event in EVENTS]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 400)), max_size=6))
def test_numbers_of_lines_are_those_of_the_events_that_can_be_read(parts) -> None:
    """Whole lines and lines that a killed writer cut anywhere."""
    data = b"".join(line[:length] + b"\n" for line, length in parts)
    numbered = numbered_lines(data)
    assert [seq for seq, _ in numbered] == [event.seq for event in read_lines(data)]
    assert all(line in LINES for _, line in numbered)


def rows(*numbers: int) -> list[tuple[int, bytes]]:
    return numbered_lines(
        b"".join(step(n, seq=n).model_dump_json().encode() + b"\n" for n in numbers)
    )


def test_two_mirrors_of_one_run_write_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "1-worker-1.jsonl"
    one, other = _LocalFile(path), _LocalFile(path)
    one.append(rows(1, 2))
    other.append(rows(1, 2, 3))
    one.append(rows(2, 3, 4))
    one.append(rows(5))
    assert [event.seq for event in read_lines(path.read_bytes())] == [1, 2, 3, 4, 5]


def test_nodes_that_show_the_same_file_give_each_line_once(tmp_path: Path) -> None:
    """Their files come in one batch."""
    path = tmp_path / "1-worker-1.jsonl"
    file = _LocalFile(path)
    file.append([*rows(1, 2), *rows(1, 2), *rows(1, 2, 3)])
    file.append([*rows(4), *rows(3, 4)])
    assert [event.seq for event in read_lines(path.read_bytes())] == [1, 2, 3, 4]


def test_a_half_line_of_a_killed_mirror_is_closed_off_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "1-worker-1.jsonl"
    path.write_bytes(rows(1)[0][1] + b"\n" + rows(2)[0][1][:40])
    file = _LocalFile(path)
    file.append(rows(1, 2))
    file.append(rows(3))
    assert [event.seq for event in read_lines(path.read_bytes())] == [1, 2, 3]


def test_a_journal_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "1-worker-1.jsonl"
    file = _LocalFile(path)
    file.append(rows(1, 2, 3))
    path.write_bytes(b"")
    file.append(rows(1))
    assert [event.seq for event in read_lines(path.read_bytes())] == [1]
