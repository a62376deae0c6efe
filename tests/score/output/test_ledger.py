"""Finished parts are found again, and an output is complete only when it is the input's."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from llmops_kernel.errors import StoreError
from llmops_kernel.score.ledger import Ledger, PartResult
from llmops_kernel.score.sink import SUCCESS, Sink, part_name
from llmops_kernel.tables.parts import Part, Plan


def _plan(parts: int = 3, mark: str = "f") -> Plan:
    made = [Part(n, "x.jsonl", "jsonl", n * 10, 10, 0) for n in range(parts)]
    return Plan(tuple(made), mark)


def _ledger(
    sink: Sink, plan: Plan | None = None, *, attempt: int = 1, run: str = "r1", is_own: bool = False
) -> Ledger:
    return Ledger(sink, plan or _plan(), run=run, attempt=attempt, is_own=is_own)


def _result(sink: Sink, index: int, rows: int = 10, refused: str = "") -> PartResult:
    size = sink.write_table(index, pa.table({"n": list(range(rows))}))
    errors = rows if refused else 0
    return PartResult(index, rows, errors, 1, 1, size, 0.1, refused=refused)


def _begun(sink: Sink, *indices: int) -> None:
    """An output that a first attempt has left unfinished."""
    ledger = _ledger(sink)
    ledger.open(columns={"names": ["a"]})
    for index in indices:
        ledger.add(_result(sink, index))
    ledger.flush()


def _left(sink: Sink, *, attempt: int = 2) -> list[int]:
    ledger = _ledger(sink, attempt=attempt)
    ledger.open(columns={})
    return [part.index for part in ledger.remaining()]


@pytest.fixture(params=["folder", "memory"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    url = str(tmp_path / "out")
    return Sink(url if request.param == "folder" else f"memory://{tmp_path.name}/out")


def test_the_next_attempt_does_what_is_left(sink: Sink) -> None:
    first = _ledger(sink)
    assert first.open(columns={"names": ["a"]}) == {"names": ["a"]}
    first.add(_result(sink, 1))
    first.flush()
    second = _ledger(sink, attempt=2)
    assert second.open(columns={"names": ["other"]}) == {"names": ["a"]}, "as first decided"
    assert [part.index for part in second.remaining()] == [0, 2]
    second.add(_result(sink, 0))
    second.add(_result(sink, 2))
    second.complete({"rows": 30})
    assert sink.exists(SUCCESS)


def test_a_part_that_was_not_flushed_is_done_again(sink: Sink) -> None:
    first = _ledger(sink)
    first.open(columns={})
    first.add(_result(sink, 0))
    second = _ledger(sink, attempt=2)
    second.open(columns={})
    assert len(second.remaining()) == 3


def test_a_part_whose_file_is_gone_or_another_is_done_again(sink: Sink) -> None:
    first = _ledger(sink)
    first.open(columns={})
    for index in range(3):
        first.add(_result(sink, index))
    first.flush()
    sink.delete(part_name(0))
    sink.write(part_name(1), b"half")
    second = _ledger(sink, attempt=2)
    second.open(columns={})
    assert [part.index for part in second.remaining()] == [0, 1]


def test_no_success_while_rows_are_missing(sink: Sink) -> None:
    ledger = _ledger(sink)
    ledger.open(columns={})
    for index in range(3):
        ledger.add(_result(sink, index, rows=9 if index == 2 else 10))
    with pytest.raises(StoreError, match="9 of 10 rows"):
        ledger.complete({})
    assert not sink.exists(SUCCESS)


def test_a_file_of_somebody_else_is_noticed(sink: Sink) -> None:
    ledger = _ledger(sink, _plan(1))
    ledger.open(columns={})
    ledger.add(_result(sink, 0))
    sink.write(part_name(7), b"x")
    with pytest.raises(StoreError, match=r"part-00000007\.parquet is not of this run"):
        ledger.complete({})


def test_another_run_does_not_take_the_answers_for_its_own(sink: Sink) -> None:
    """It found all parts finished, and ended with the answers of another model."""
    _begun(sink, 0, 1, 2)
    with pytest.raises(StoreError, match="has the rows of run r1") as raised:
        _ledger(sink, run="r2").open(columns={})
    assert "output.url" in raised.value.remedy
    assert sink.url in raised.value.remedy
    assert sorted(sink.parts()) == [part_name(n) for n in range(3)]


def test_of_two_runs_that_begin_at_once_one_is_refused(tmp_path: Path) -> None:
    barrier = threading.Barrier(2, timeout=30)

    class Slow(Sink):
        """Looks at the folder at the same moment as the other one."""

        def parts(self) -> dict[str, int]:
            barrier.wait()
            return super().parts()

    def begin(run: str) -> str:
        try:
            _ledger(Slow(str(tmp_path / "out")), run=run).open(columns={})
        except StoreError as error:
            return error.message
        return run

    with ThreadPoolExecutor(2) as pool:
        found = sorted(pool.map(begin, ["r1", "r2"]))
    assert found[0].endswith("which may be of another model, prompt or sampling.")
    assert found[1] in ("r1", "r2")


@pytest.mark.parametrize(
    ("attempt", "is_own", "success", "is_mine"),
    [
        (1, False, "", False),
        (1, True, "", True),
        (2, False, "", True),
        (2, False, "r1", True),
        (2, False, "r0", False),
    ],
)
def test_a_plan_of_an_earlier_version_names_no_run(
    sink: Sink, attempt: int, is_own: bool, success: str, is_mine: bool
) -> None:
    _begun(sink, 0)
    plan = json.loads(sink.read("_plan.json") or b"")
    del plan["run"]
    sink.write("_plan.json", json.dumps(plan).encode())
    if success:
        sink.write(SUCCESS, json.dumps({"run": success}).encode())
    ledger = _ledger(sink, attempt=attempt, is_own=is_own)
    if is_mine:
        ledger.open(columns={})
        assert len(ledger.remaining()) == 2
    else:
        with pytest.raises(StoreError, match="has the rows of"):
            ledger.open(columns={})


@pytest.mark.parametrize("text", [b"", b'{"run": "r1", "fing', b"[]", b'{"run": "r1"}'])
def test_a_plan_that_was_cut_off(sink: Sink, text: bytes) -> None:
    sink.write("_plan.json", text)
    assert _left(sink) == [0, 1, 2]
    sink.write("_plan.json", text)
    sink.write(part_name(0), b"rows")
    with pytest.raises(StoreError, match="was cut off") as raised:
        _left(sink)
    assert f"delete {sink.url}" in raised.value.remedy


def test_a_ledger_line_that_was_cut_off_is_a_part_to_do_again(sink: Sink) -> None:
    _begun(sink, 0, 1)
    name = "_ledger/0001-000001.jsonl"
    whole = sink.read(name) or b""
    for cut in (1, len(whole) // 3):
        sink.write(name, whole[:-cut].rstrip())
        assert _left(sink) == ([2] if cut == 1 else [1, 2])
    sink.write(name, whole.replace(b'"num_bytes"', b'"of a later version"', 1))
    assert _left(sink) == [0, 2]


def test_what_killed_processes_left_is_deleted(tmp_path: Path) -> None:
    sink = Sink(str(tmp_path / "out"))
    _begun(sink, 0)
    names = [".part-00000001.parquet.1a2b.tmp", "._plan.json.1a2b.tmp", "_tmp-1a2b", ".keep"]
    for name in names:
        (tmp_path / "out" / name).write_bytes(b"half")
    (tmp_path / "out" / "_ledger" / ".0001-000002.jsonl.1a2b.tmp").write_bytes(b"half")
    with pytest.raises(StoreError):
        _ledger(sink, run="r2").open(columns={})
    assert (tmp_path / "out" / names[0]).exists(), "the run that it belongs to may write now"
    assert _left(sink) == [1, 2]
    assert not (tmp_path / "out" / names[0]).exists()
    assert (tmp_path / "out" / names[1]).exists(), "another run may be about to be refused"
    ledger = _ledger(sink, attempt=3)
    ledger.open(columns={})
    for index in (1, 2):
        ledger.add(_result(sink, index))
    ledger.complete({})
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {*map(part_name, range(3)), "_plan.json", "_ledger", "_SUCCESS", ".keep"}
    names = sorted(path.name for path in (tmp_path / "out" / "_ledger").iterdir())
    assert names == ["0001-000001.jsonl", "0003-000001.jsonl"]


def test_a_part_that_the_engine_refused_is_done_again(sink: Sink) -> None:
    ledger = _ledger(sink)
    ledger.open(columns={})
    ledger.add(_result(sink, 0, refused="the adapter is of another base model"))
    ledger.add(_result(sink, 1))
    ledger.flush()
    assert _left(sink) == [0, 2]
    again = _ledger(sink, attempt=2)
    again.open(columns={})
    again.add(_result(sink, 0))
    again.flush()
    assert _left(sink, attempt=3) == [2]


def test_a_changed_input_is_refused(sink: Sink) -> None:
    _ledger(sink, _plan(mark="a")).open(columns={})
    with pytest.raises(StoreError, match="input has changed"):
        _ledger(sink, _plan(mark="b"), attempt=2).open(columns={})


def test_a_folder_with_other_parts_is_refused(sink: Sink) -> None:
    sink.write(part_name(0), b"of another run")
    with pytest.raises(StoreError, match="already has 1 Parquet parts"):
        _ledger(sink).open(columns={})


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
