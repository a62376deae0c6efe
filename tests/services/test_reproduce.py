"""Reproductions from records made by hand: the reason, and what cannot be reproduced."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from llmops_kernel.errors import RunFailedError, RunStateError, SubmissionError
from llmops_kernel.metrics.events import EndEvent, InputsEvent, StartEvent, StepEvent
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.services.reproduce import check, result
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import call

_START = {"num_workers": 1, "global_batch_size": 4, "device": "EPYC", "dtype": "float32"}
FILES = {"train.py": "aaaa", "rows.jsonl": "1111", "README.md": "eeee"}
INPUTS = RunInputs(
    versions={"torch": "2.13.0"},
    machine={"cpu": "EPYC", "instructions": "AVX512"},
    data={"rows.jsonl": "1111"},
    model={"model.safetensors": "dddd"},
)


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore()


def add(
    store: RunStore,
    run_id: str,
    *,
    inputs: RunInputs | None = INPUTS,
    losses: tuple[float, ...] = (0.5, 0.25, 0.125),
    state: str = "SUCCEEDED",
    resumed_after: int = 0,
    start: dict[str, object] | None = None,
    **record: object,
) -> None:
    known = {"name": "x", "created_s": 1.0, "cluster": "local", "files": FILES} | record
    known = {"config": {"data": {"train": "rows.jsonl"}}} | known
    folder = store.create(RunRecord(run_id=run_id, **known), config_yaml="")
    first = 1
    for attempt in (1, 2) if resumed_after else (1,):
        out = JournalWriter([folder.journal], stream=f"{attempt}-worker-1", attempt=attempt)
        out.emit(StartEvent(total_steps=3, first_step=first, **_START | (start or {})))
        if inputs is not None:
            out.emit(InputsEvent(inputs=inputs))
        last = resumed_after if resumed_after and attempt == 1 else len(losses)
        for number in range(first, last + 1):
            out.emit(StepEvent(step=number, loss=losses[number - 1], tokens=8))
        is_first = last < len(losses)
        out.emit(EndEvent(state="FAILED" if is_first else state, message="it broke"))
        out.close()
        first = last + 1


OTHER = {"losses": (0.5, 0.3, 0.125)}
CASES = {
    "code": ({"files": FILES | {"train.py": "bbbb"}}, "changed code: train.py aaaa -> bbbb"),
    "data": (
        {
            "files": FILES | {"rows.jsonl": "2222"},
            "inputs": INPUTS.model_copy(update={"data": {"rows.jsonl": "2222"}}),
        },
        "changed data: rows.jsonl 1111 -> 2222",
    ),
    "torch": (
        {"inputs": INPUTS.model_copy(update={"versions": {"torch": "2.14.0"}})},
        "other versions: torch 2.13.0 -> 2.14.0",
    ),
    "cpu": (
        {"inputs": INPUTS.model_copy(update={"machine": INPUTS.machine | {"cpu": "Xeon"}})},
        "another device: cpu EPYC -> Xeon",
    ),
    "workers": ({"start": {"num_workers": 2}}, "workers and batches: workers 1 -> 2"),
    "resume": ({"resumed_after": 1}, "a resume: attempts none resumed -> resumed after step 1"),
    "config": (
        {"config": {"data": {"train": "rows.jsonl"}, "seed": 7}},
        "config: seed – -> 7",
    ),
    # A run of an earlier version: nobody knows.
    "nothing": ({"inputs": None}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_in_the_records(store, case):
    changed, expected = CASES[case]
    add(store, "one")
    add(store, "two", **OTHER, **changed)
    answer = result(store, "one", "two")
    assert answer.compared.difference.place == (2, 0)
    assert answer.compared.num_rows == 1
    assert [each.text for each in answer.reasons] == ([expected] if expected else [])
    assert (answer.to_json()["reason"] == "unknown") == (not expected)


def test_another_record_with_the_same_numbers_is_equal(store):
    add(store, "one")
    add(store, "two", resumed_after=2, files=FILES | {"train.py": "bbbb"})
    answer = result(store, "one", "two")
    assert answer.is_equal
    assert {each.group for each in answer.changes} == {"code", "attempts"}
    assert "Although these differ" in answer.text


def test_a_failed_run_is_compared_with_one_that_fails_alike(store):
    add(store, "one", state="FAILED")
    add(store, "two", state="FAILED")
    add(store, "three")
    answer = result(store, "one", "two")
    assert (answer.is_equal, len(answer.notes)) == (True, 2)
    with pytest.raises(RunFailedError, match="it broke"):
        result(store, "three", "one")


def test_what_cannot_be_reproduced_is_said_before_anything_starts(store, tmp_path):
    add(store, "empty", losses=())
    add(store, "strange", kind="of-another-version")
    add(store, "scored", kind="score", state="STOPPED")
    add(store, "packed", code_hash="0" * 64)
    for name, words in (
        ("empty", "no step"),
        ("strange", "makes no steps"),
        ("scored", "not all scored"),
    ):
        with pytest.raises(RunStateError, match=words) as raised:
            check(store, name)
        assert raised.value.remedy
    with pytest.raises(SubmissionError, match="deleted"):
        check(store, "packed")


def test_deleted_data_is_named(store, tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "far.jsonl").write_text("{}\n")
    inputs = RunInputs(data={"rows.jsonl": "1111", "far.jsonl": "2222", "gone.jsonl": "3333"})
    add(store, "one", inputs=inputs, workspace_root=str(folder), host=socket.gethostname())
    with pytest.raises(RunStateError, match=r"gone\.jsonl") as raised:
        check(store, "one")
    assert "far.jsonl" not in raised.value.message
    shutil.copy(folder / "far.jsonl", folder / "gone.jsonl")
    assert check(store, "one").record.run_id == "one"


def test_exit_codes(store, capsys):
    add(store, "one")
    add(store, "two")
    add(store, "three", **OTHER)
    assert call("reproduce", "one", "--against", "two") == 0
    assert capsys.readouterr().out == "equal: 3 steps, bit for bit\n"
    assert call("reproduce", "one", "--against", "three", "--json") == 1
    assert '"step": 2' in capsys.readouterr().out
    assert call("reproduce", "one", "--against", "missing") == 2
