from __future__ import annotations

import shutil
import threading
from pathlib import Path

from llmops_kernel.metrics.events import EndEvent, StepEvent
from llmops_kernel.services.run_list import list_rows, newest, summaries
from llmops_kernel.services.run_table import FEW, RunTable, read_records
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.run_notes import change_tags
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.query import Query
from tests.services.run_table.stores import add


def found(table: RunTable, where: str = "") -> list[str]:
    return [row.run_id for row in table.select(Query(where=where)).rows]


def test_runs_are_found_by_config_and_figures(store):
    add(store, "a-1", config={"method": {"r": 16}}, eval_loss=0.3, created_s=1)
    add(store, "a-2", config={"method": {"r": 8}}, eval_loss=0.2, created_s=2)
    add(store, "a-3", config={"method": {"r": 32}}, state="FAILED", created_s=3)
    table = RunTable(store)
    table.refresh()
    assert found(table) == ["a-3", "a-2", "a-1"]
    assert found(table, "method.r > 8 and eval_loss < 0.4") == ["a-1"]
    assert found(table, "state == 'failed'") == ["a-3"]


class SlowIndex(RunStore):
    """Keeps nothing in its index before `goes_on` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.waits, self.goes_on = threading.Event(), threading.Event()

    def cache_summary(self, summary: RunSummary, *, fingerprint: str) -> None:
        self.waits.set()
        assert self.goes_on.wait(30)
        super().cache_summary(summary, fingerprint=fingerprint)


def test_it_is_reading_until_other_threads_find_the_rows(tmp_path):
    store = SlowIndex(tmp_path / "home")
    add(store, "a-1")
    add(store, "a-2")
    table = RunTable(store)
    store.goes_on.set()
    table.refresh(check_s=0)
    assert (found(table), table.is_reading) == (["a-2"], True)
    store.waits.clear()
    store.goes_on.clear()
    other = threading.Thread(target=table.refresh)
    other.start()
    assert store.waits.wait(30)
    assert (found(table), table.is_reading) == (["a-2"], True)  # The other has read all by now.
    store.goes_on.set()
    other.join(30)
    assert (found(table), table.is_reading) == (["a-2", "a-1"], False)


def test_a_journal_that_grows_changes_its_row(store):
    out = add(store, "a-1", state=None, loss=0.9)
    table = RunTable(store)
    table.refresh()
    assert found(table, "loss < 0.5") == []
    out.emit(StepEvent(step=2, loss=0.4, step_time_s=0.1))
    table.refresh()
    assert found(table, "loss < 0.5 and state == 'running'") == ["a-1"]
    out.emit(EndEvent(state="STOPPED"))
    out.close()
    table.refresh()
    assert found(table, "state == 'stopped'") == ["a-1"]


def test_notes_come_and_runs_go(store):
    add(store, "a-1")
    add(store, "a-2")
    table = RunTable(store)
    table.refresh()
    change_tags(store.folder("a-1"), add=["best"])
    store.annotate("a-2", title="second")
    table.refresh()
    assert found(table, "'best' in tags") == ["a-1"]
    assert found(table, "title == 'second'") == ["a-2"]
    store.delete("a-1")
    table.refresh()
    assert found(table) == ["a-2"]
    add(store, "a-1")
    table.refresh()
    assert found(table) == ["a-2", "a-1"]
    assert found(table, "'best' in tags") == []


def test_what_cannot_be_read_does_not_hide_the_others(store):
    add(store, "a-1", config={"x": 1})
    add(store, "broken-record")
    store.folder("broken-record").record.write_text("{")
    add(store, "broken-journal")
    (store.folder("broken-journal").journal / "1-worker-1.jsonl").write_bytes(b"\0\xff{{{\n" * 9)
    add(store, "no-journal")
    shutil.rmtree(store.folder("no-journal").journal)
    add(store, "broken-notes")
    store.folder("broken-notes").notes.write_text("[1")
    fresh = RunTable(RunStore(store.root))
    fresh.refresh()
    assert set(found(fresh)) >= {"a-1", "broken-journal", "no-journal", "broken-notes"}
    assert found(fresh, "x == 1") == ["a-1"]


def test_a_broken_index_costs_time_only(store):
    for number in range(FEW + 1):
        add(store, f"a-{number}", config={"x": number})
    RunTable(store).refresh()
    for text in ("{", "[1, 2]", "[1, [], {}]", '[99, {"config.x": 5}, {}]', "null"):
        store.index.put_texts({"a-3": text})
        table = RunTable(RunStore(store.root))
        table.refresh()
        assert found(table, "x == 3") == ["a-3"]
    store.index.path.write_bytes(b"not a database")
    table = RunTable(RunStore(store.root))
    table.refresh()
    assert len(found(table)) == FEW + 1


def test_a_restarted_process_shows_what_the_index_has_kept_before_it_checks(store):
    for number in range(FEW):
        add(store, f"a-{number}", config={"x": number}, eval_loss=float(number))
    RunTable(store).refresh()
    again = RunTable(RunStore(store.root))
    again.refresh(check_s=0.0)
    assert len(found(again, "eval_loss >= 0 and x >= 0")) == FEW


def test_followed_runs_are_taken_from_who_follows_them(store):
    out = add(store, "a-1", state=None, loss=0.9)
    table = RunTable(store)
    table.refresh()
    (summary,) = summaries(store, newest(store))
    out.emit(StepEvent(step=2, loss=0.1, step_time_s=0.1))
    table.refresh_unless_busy(dict, {"a-1"})
    assert found(table, "loss == 0.9") == ["a-1"]
    news = summary.model_copy(update={"state": "STOPPING"})
    table.refresh_unless_busy(lambda: {"a-1": news}, {"a-1"})
    assert found(table, "state == 'stopping'") == ["a-1"]
    # Nobody follows it any more: its journal is read again.
    table.refresh_unless_busy(dict, ())
    assert found(table, "loss == 0.1 and state == 'running'") == ["a-1"]
    out.close()


def test_records_are_read_once(store):
    add(store, "a-1", config={"data": {"ü": "x" * 999}, "deep": [{"y": [1, None]}]})
    first = read_records(store, ["a-1", "missing"])
    store.folder("a-1").record.write_text("{")
    assert read_records(store, ["a-1"]) == first


def test_hidden_runs_are_listed_only_when_asked_for(store):
    add(store, "a-1")
    add(store, "bench-1", hidden=True)
    assert [row.run_id for row in list_rows(store, Query()).rows] == ["a-1"]
    assert len(list_rows(store, Query(hidden=True)).rows) == 2
    assert len(list_rows(store, Query(hidden=True), limit=1).rows) == 1


def test_runs_that_somebody_follows_do_not_hold_up_the_reading_of_others(store):
    live = [f"live-{number}" for number in range(3)]
    for run_id in live:
        add(store, run_id, state=None, created_s=9)
    table = RunTable(store)
    table.refresh()
    for number in range(3):
        add(store, f"old-{number}", created_s=number + 1)
    for _ in range(3):  # There is time for one run in each look.
        table.refresh(check_s=0, followed=frozenset(live))
    assert sorted(found(table)) == [*live, "old-0", "old-1", "old-2"]
    assert not table.is_reading
