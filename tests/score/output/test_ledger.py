"""Finished parts are found again, and an output is complete only when it is the input's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from llmops_kernel.errors import StoreError
from llmops_kernel.score.output.ledger import Ledger, PartResult
from llmops_kernel.score.output.sink import SUCCESS, Sink, part_name
from llmops_kernel.tables.parts import Part, Plan


def _plan(parts: int = 3, mark: str = "f") -> Plan:
    made = [Part(n, "x.jsonl", "jsonl", n * 10, 10, 0) for n in range(parts)]
    return Plan(tuple(made), mark)


def _result(sink: Sink, index: int, rows: int = 10) -> PartResult:
    size = sink.write_table(index, pa.table({"n": list(range(rows))}))
    return PartResult(index, rows, 0, 1, 1, size, 0.1)


@pytest.fixture(params=["folder", "memory"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    url = str(tmp_path / "out")
    return Sink(url if request.param == "folder" else f"memory://{tmp_path.name}/out")


def test_the_next_attempt_does_what_is_left(sink: Sink) -> None:
    first = Ledger(sink, _plan(), attempt=1)
    assert first.open(columns={"names": ["a"]}) == {"names": ["a"]}
    first.add(_result(sink, 1))
    first.flush()
    second = Ledger(sink, _plan(), attempt=2)
    assert second.open(columns={"names": ["other"]}) == {"names": ["a"]}, "as first decided"
    assert [part.index for part in second.remaining()] == [0, 2]
    second.add(_result(sink, 0))
    second.add(_result(sink, 2))
    second.complete({"rows": 30})
    assert sink.exists(SUCCESS)


def test_a_part_that_was_not_flushed_is_done_again(sink: Sink) -> None:
    first = Ledger(sink, _plan(), attempt=1)
    first.open(columns={})
    first.add(_result(sink, 0))
    second = Ledger(sink, _plan(), attempt=2)
    second.open(columns={})
    assert len(second.remaining()) == 3


def test_a_part_whose_file_is_gone_or_another_is_done_again(sink: Sink) -> None:
    first = Ledger(sink, _plan(), attempt=1)
    first.open(columns={})
    for index in range(3):
        first.add(_result(sink, index))
    first.flush()
    sink.delete(part_name(0))
    sink.write(part_name(1), b"half")
    second = Ledger(sink, _plan(), attempt=2)
    second.open(columns={})
    assert [part.index for part in second.remaining()] == [0, 1]


def test_no_success_while_rows_are_missing(sink: Sink) -> None:
    ledger = Ledger(sink, _plan(), attempt=1)
    ledger.open(columns={})
    for index in range(3):
        ledger.add(_result(sink, index, rows=9 if index == 2 else 10))
    with pytest.raises(StoreError, match="9 of 10 rows"):
        ledger.complete({})
    assert not sink.exists(SUCCESS)


def test_a_file_of_somebody_else_is_noticed(sink: Sink) -> None:
    ledger = Ledger(sink, _plan(1), attempt=1)
    ledger.open(columns={})
    ledger.add(_result(sink, 0))
    sink.write(part_name(7), b"x")
    with pytest.raises(StoreError, match=r"part-00000007\.parquet is not of this run"):
        ledger.complete({})


def test_a_changed_input_is_refused(sink: Sink) -> None:
    Ledger(sink, _plan(mark="a"), attempt=1).open(columns={})
    with pytest.raises(StoreError, match="input has changed"):
        Ledger(sink, _plan(mark="b"), attempt=2).open(columns={})


def test_a_folder_with_other_parts_is_refused(sink: Sink) -> None:
    sink.write(part_name(0), b"of another run")
    with pytest.raises(StoreError, match="already has 1 Parquet parts"):
        Ledger(sink, _plan(), attempt=1).open(columns={})


def test_a_file_in_place_of_the_folder_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError) as raised:
        Sink(str(tmp_path / "out")).prepare()
    assert "output.url" in raised.value.remedy


def test_a_full_disk_says_so() -> None:
    """/dev/full fails each write, as a full disk does."""
    sink = Sink("/dev/full/out")
    with pytest.raises(StoreError, match=r"cannot be written"):
        sink.write("x", b"data")
