"""Titles, stars and notes beside an immutable record; what a deletion would remove."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent, OutputEvent
from llmops_kernel.store.garbage import folder_size, preview
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.run_notes import MAX_TITLE, RunNotes
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs
from tests.store.events import end


@pytest.fixture
def run(store: RunStore) -> str:
    record = RunRecord(run_id="r-1", name="r", created_s=1.0, cluster="local", config={})
    store.create(record, config_yaml="")
    return record.run_id


def test_a_run_without_notes_has_empty_ones(store: RunStore, run: str):
    assert store.notes(run) == RunNotes()


def test_a_change_leaves_the_rest_and_the_record_alone(store: RunStore, run: str):
    before = store.folder(run).record.read_bytes()
    store.annotate(run, title="lr 5e-5", starred=True)
    store.annotate(run, note="better\nthan the last")
    assert RunStore(store.root).notes(run) == RunNotes(
        title="lr 5e-5", starred=True, note="better\nthan the last"
    )
    assert store.folder(run).record.read_bytes() == before


def test_people_who_change_different_notes_at_once_both_keep_theirs(store: RunStore, run: str):
    def change(**values: str | bool) -> None:
        for _ in range(25):
            store.annotate(run, **values)

    threads = [
        threading.Thread(target=change, kwargs=kwargs)
        for kwargs in ({"title": "t"}, {"starred": True}, {"note": "n"})
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.notes(run) == RunNotes(title="t", starred=True, note="n")


def test_too_long_a_title_is_refused_with_a_remedy(store: RunStore, run: str):
    with pytest.raises(StoreError, match="title") as reported:
        store.annotate(run, title="x" * (MAX_TITLE + 1))
    assert str(MAX_TITLE) in reported.value.remedy


def test_broken_notes_count_as_none(store: RunStore, run: str):
    store.folder(run).notes.write_text("{half")
    assert store.notes(run) == RunNotes()
    assert store.annotate(run, starred=True).starred


def test_only_starred_runs_are_listed_when_asked(store: RunStore, run: str):
    store.create(
        RunRecord(run_id="r-2", name="r", created_s=2.0, cluster="local", config={}), config_yaml=""
    )
    store.annotate(run, starred=True)
    assert [row.run_id for row in list_runs(store, starred=True)] == ["r-1"]
    assert [row.run_id for row in list_runs(store, starred=False)] == ["r-2"]
    assert store.ids() == ["r-2", "r-1"]


def test_the_preview_shows_what_goes_and_what_stays(store: RunStore, run: str, tmp_path: Path):
    folder = store.folder(run)
    (folder.checkpoints / "step-5").mkdir(parents=True)
    (folder.checkpoints / "step-5" / "weights").write_bytes(b"x" * 1000)
    inside, outside = str(folder.output / "adapter"), str(tmp_path / "elsewhere")
    writer = JournalWriter([folder.journal], stream="1-worker-1", attempt=1)
    writer.emit(CheckpointEvent(step=5, path=str(folder.checkpoints / "step-5")))
    writer.emit(OutputEvent(path=inside, what="adapter"))
    writer.emit(OutputEvent(path=outside, what="model"))
    writer.emit(OutputEvent(path="s3://bucket/run", what="model"))
    writer.emit(end("SUCCEEDED", seq=0))
    writer.close()
    child = RunRecord(run_id="r-2", name="r", created_s=2.0, cluster="local", config={}, parent=run)
    store.create(child, config_yaml="")
    reported = preview(store, "r-1")
    assert reported.state == "SUCCEEDED"
    assert reported.size_bytes == folder_size(folder.root) > 1000
    assert reported.checkpoints == [str(folder.checkpoints / "step-5")]
    assert (reported.outputs, reported.kept) == ([inside], sorted([outside, "s3://bucket/run"]))
    assert reported.children == ["r-2"]
    store.delete(run)
    assert not folder.root.exists()
