from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from llmops_kernel.errors import RunNotFoundError, RunStateError, StoreError
from llmops_kernel.metrics.events import EndEvent, EvalEvent, PhaseEvent, StartEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.journal.view import Progress
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs
from tests.store.events import step


def record(run_id: str, *, created_s: float = 1.0, **fields) -> RunRecord:
    fields = {"name": run_id.split("-")[0], "cluster": "local", "config": {"seed": 1}} | fields
    return RunRecord(run_id=run_id, created_s=created_s, **fields)


def add(store: RunStore, run_id: str, **fields):
    return store.create(record(run_id, **fields), config_yaml="seed: 1\n")


def attempt(number: int) -> Attempt:
    return Attempt(
        number=number, submission_id=f"s-{number}", cluster="local", dashboard_url="", submitted_s=1
    )


def train(store: RunStore, run_id: str, *, last_step: int = 3) -> None:
    out = JournalWriter([store.folder(run_id).journal], stream="1-worker-1", attempt=1)
    shape = {"num_workers": 1, "global_batch_size": 8, "device": "cpu", "dtype": "float32"}
    out.emit(StartEvent(total_steps=last_step, **shape))
    for number in range(1, last_step + 1):
        out.emit(step(number, seq=1))
    out.emit(EvalEvent(step=last_step, metrics={"accuracy": 0.9}, num_rows=4, duration_s=1))
    out.emit(EndEvent(state="SUCCEEDED"))
    out.close()


def test_a_run_reads_back_as_written(store):
    made = record("menu-1", parent="menu-0")
    folder = store.create(made, config_yaml="seed: 1\n", git_diff="+é\udcff\n")
    assert store.record("menu-1") == made
    assert folder.config.read_text() == "seed: 1\n"
    assert folder.git_diff.read_bytes() == "+é".encode() + b"\xff\n"
    assert [path for path in folder.root.iterdir() if path.name.endswith(".tmp")] == []


def test_a_record_is_never_overwritten(store):
    add(store, "menu-1")
    with pytest.raises(StoreError, match="exists already"):
        add(store, "menu-1", created_s=2.0)
    assert store.record("menu-1").created_s == 1.0


@pytest.mark.parametrize("run_id", ["", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "a\nb"])
def test_a_run_id_cannot_leave_the_store(store, run_id):
    with pytest.raises(StoreError, match="cannot name a run"):
        add(store, run_id)
    with pytest.raises(RunNotFoundError):
        store.resolve(run_id)


@pytest.mark.parametrize(
    ("ref", "run_id"),
    [
        ("menu-260101-aaaa", "menu-260101-aaaa"),
        ("menu-260101-b", "menu-260101-bbbb"),
        ("tags", "tags-260102-cccc"),
        ("last", "tags-260102-cccc"),
        ("last~0", "tags-260102-cccc"),
        ("last~2", "menu-260101-aaaa"),
    ],
)
def test_resolve(store, ref, run_id):
    for number, known in enumerate(["menu-260101-aaaa", "menu-260101-bbbb", "tags-260102-cccc"]):
        add(store, known, created_s=float(number))
    assert store.resolve(ref) == run_id
    assert store.folder(ref).root.name == run_id


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("menu", ["begins 2 run ids", "menu-260101-aaaa", "menu-260101-bbbb"]),
        ("menu-260101-aaab", ["there is no run with this id", "menu-260101-aaaa"]),
        ("last~9", ["there are 3 runs", "tags-260102-cccc"]),
        ("zzz", ["there is no run with this id", "tags-260102-cccc"]),
    ],
)
def test_resolve_names_near_matches(store, ref, expected):
    for number, known in enumerate(["menu-260101-aaaa", "menu-260101-bbbb", "tags-260102-cccc"]):
        add(store, known, created_s=float(number))
    with pytest.raises(RunNotFoundError) as caught:
        store.resolve(ref)
    assert [text for text in expected if text not in str(caught.value)] == []


def test_an_empty_store_says_so(store):
    assert list_runs(store) == []
    with pytest.raises(RunNotFoundError, match="submit a run first"):
        store.resolve("last")


def test_attempts_are_appended_and_numbers_taken_once(store):
    add(store, "menu-1")
    assert store.attempts("menu-1") == []
    store.add_attempt("menu-1", attempt(1))
    with pytest.raises(RunStateError, match="exists already"):
        store.add_attempt("menu-1", attempt(1))
    with store.folder("menu-1").attempts.open("a") as file:
        file.write('{"number": 2, "subm')  # A crash or a full disk.
    store.add_attempt("menu-1", attempt(2))
    assert [a.number for a in store.attempts("menu-1")] == [1, 2]


def test_list_shows_figures_newest_first_and_filters(store):
    add(store, "menu-1", created_s=1.0)
    add(store, "tags-1", created_s=3.0, cluster="gpu", parent="menu-1")
    add(store, "menu-2", created_s=2.0)
    train(store, "menu-2")
    assert [s.run_id for s in list_runs(store)] == ["tags-1", "menu-2", "menu-1"]
    assert [s.run_id for s in list_runs(store, name="menu")] == ["menu-2", "menu-1"]
    assert [s.run_id for s in list_runs(store, cluster="gpu")] == ["tags-1"]
    assert [s.run_id for s in list_runs(store, limit=1)] == ["tags-1"]
    done = list_runs(store, name="menu")[0]
    assert (done.state, done.progress) == ("SUCCEEDED", Progress(3, 3, "steps"))
    figures = {figure.key: figure.value for figure in done.figures}
    assert (figures["loss"], figures["mfu"]) == (pytest.approx(1 / 3), 0.5)
    assert figures["accuracy"] == 0.9
    assert list_runs(store, limit=1)[0].parent == "menu-1"


def test_list_follows_the_journal_and_new_attempts(store):
    add(store, "menu-1")
    assert list_runs(store)[0].state == "PENDING"
    train(store, "menu-1")
    assert list_runs(store)[0].state == "SUCCEEDED"
    store.add_attempt("menu-1", attempt(2))
    assert (list_runs(store)[0].state, list_runs(store)[0].attempt) == ("PENDING", 2)
    out = JournalWriter([store.folder("menu-1").journal], stream="2-driver", attempt=2)
    out.emit(PhaseEvent(name="driver", state="begin"))
    assert list_runs(store)[0].state == "RUNNING"


def test_list_does_not_parse_journals_again(store):
    add(store, "menu-1")
    train(store, "menu-1")
    before = list_runs(store)
    journal = store.folder("menu-1").journal / "1-worker-1.jsonl"
    journal.write_bytes(b"x" * journal.stat().st_size)  # Same size: nothing to look at again.
    assert list_runs(store) == before
    (store.root / "runs.sqlite").unlink()
    assert list_runs(store)[0].progress is None


def test_the_index_is_rebuilt_from_the_folders(store):
    add(store, "menu-1")
    train(store, "menu-1")
    before = list_runs(store)
    for name in ("runs.sqlite", "runs.sqlite-wal", "runs.sqlite-shm"):
        (store.root / name).unlink(missing_ok=True)
    assert list_runs(RunStore(store.root)) == before


@pytest.mark.parametrize("damage", [b"this is no database", b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_broken_index_is_renamed(store, damage):
    add(store, "menu-1")
    train(store, "menu-1")
    before = list_runs(store)
    for name in ("runs.sqlite-wal", "runs.sqlite-shm"):
        (store.root / name).unlink(missing_ok=True)
    (store.root / "runs.sqlite").write_bytes(damage)
    assert list_runs(store) == before
    renamed = [path for path in store.root.iterdir() if ".broken-" in path.name]
    assert damage in [path.read_bytes() for path in renamed]
    with sqlite3.connect(store.root / "runs.sqlite") as db:
        assert db.execute("SELECT run_id FROM runs_v3").fetchall() == [("menu-1",)]
    db.close()


def test_an_unusable_index_only_costs_time(store):
    add(store, "menu-1")
    train(store, "menu-1")
    for path in store.root.glob("runs.sqlite*"):
        path.unlink()
    (store.root / "runs.sqlite").mkdir()
    assert [s.state for s in list_runs(store)] == ["SUCCEEDED"]
    assert store.resolve("last") == "menu-1"


def test_a_folder_without_record_is_no_run_and_a_broken_record_hides_no_other(store):
    add(store, "menu-1")
    (store.root / "runs" / "being-made").mkdir()
    broken = add(store, "bad-1")
    broken.record.write_text("{")
    (store.root / "runs.sqlite").unlink()
    assert [s.run_id for s in list_runs(store)] == ["menu-1"]
    with pytest.raises(StoreError, match="broken"):
        store.record("bad-1")


def test_delete(store):
    folder = add(store, "menu-1")
    add(store, "menu-2", created_s=2.0)
    assert len(list_runs(store)) == 2
    store.delete("menu-1")
    assert not folder.root.exists()
    assert [s.run_id for s in list_runs(store)] == ["menu-2"]
    assert [path.name for path in (store.root / "runs").iterdir()] == ["menu-2"]


def test_events_are_given_once_even_if_a_mirror_repeats_them(store):
    add(store, "menu-1")
    train(store, "menu-1")
    path = store.folder("menu-1").journal / "1-worker-1.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    events = store.events("menu-1")
    assert sorted(e.seq for e in events) == [1, 2, 3, 4, 5, 6]
    assert store.view("menu-1").last_step == 3


BUSY = """
import sys
from pathlib import Path
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs
store = RunStore(Path(sys.argv[1]))
for n in range(9):
    run_id = f"{sys.argv[2]}-{n}"
    record = RunRecord(run_id=run_id, name="n", created_s=n, cluster="local", config={})
    store.create(record, config_yaml="")
    if n == 6 and sys.argv[2] == "a":
        (store.root / "runs.sqlite").write_bytes(b"broken by something" * 500)
    assert run_id in [s.run_id for s in list_runs(store)]
    if n % 5 == 4:
        store.delete(run_id)
"""


def test_processes_at_once_one_of_which_breaks_the_index(store, tmp_path):
    processes = [
        subprocess.Popen([sys.executable, "-c", BUSY, str(store.root), name]) for name in "abc"
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * 3
    expected = {f"{name}-{n}" for name in "abc" for n in range(9) if n % 5 != 4}
    assert {s.run_id for s in list_runs(store)} == expected


FULL = """
import resource, sys
from pathlib import Path
from llmops_kernel.errors import StoreError
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs
store = RunStore(Path(sys.argv[1]))
record = RunRecord(run_id="new-1", name="new", created_s=5, cluster="local", config={})
store.folder("old-1")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
for action in (
    lambda: store.create(record, config_yaml="x: 1"),
    lambda: store.add_attempt("old-1", Attempt(number=1, submission_id="s", cluster="local",
                                               dashboard_url="", submitted_s=1)),
):
    try:
        action()
    except StoreError as error:
        print(error.remedy)
print([s.run_id for s in list_runs(store)])
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.create(record, config_yaml="x: 1")
print([s.run_id for s in list_runs(store)], store.attempts("old-1"))
"""


def test_a_full_disk_is_reported_with_a_remedy_and_leaves_nothing_behind(store):
    add(store, "old-1")
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(store.root)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert ["free space" in line and "LLMOPS_HOME" in line for line in lines[:2]] == [True, True]
    assert lines[2:] == ["['old-1']", "['new-1', 'old-1'] []"]


def test_an_attempt_of_an_earlier_version_keeps_where_its_cluster_is(store):
    folder = add(store, "menu-1")
    line = attempt(1).model_dump_json().replace('"location":""', '"place":"ctx/ns/lab"')
    folder.attempts.write_text(line + "\n")
    assert store.attempts("menu-1")[0].full_name == "ctx/ns/lab"
    store.add_attempt("menu-1", attempt(2).model_copy(update={"location": "ctx/ns/other"}))
    assert store.attempts("menu-1")[1].full_name == "ctx/ns/other"
