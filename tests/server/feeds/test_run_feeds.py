"""The feeds of runs: what a page gets first, then, and after a lost connection."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.errors import RunNotFoundError
from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.metrics.events import EndEvent, RestartEvent
from llmops_kernel.server.runs.feed import RunFeed, RunsFeed
from llmops_kernel.server.runs.followers import Followers, Watched, read_cached
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.columns import row_bytes
from tests.server.feeds.page import Page
from tests.server.runs import add_attempt, make_run, step, worker


@pytest.fixture
def open_run(store: RunStore, followers: Followers) -> Iterator[Any]:
    feeds: list[RunFeed] = []

    def open_(run_id: str) -> RunFeed:
        feeds.append(RunFeed(run_id, followers=followers, store=store))
        return feeds[-1]

    yield open_
    for feed in feeds:
        feed.close()


@pytest.fixture
def runs_feed(store: RunStore, followers: Followers) -> Iterator[RunsFeed]:
    feed = RunsFeed(RunRows(store, followers))
    yield feed
    feed.close()


def test_two_pages_see_each_step_once(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=3, ended=None)
    feed, writer = open_run("r-1"), worker(store, "r-1")
    early, late = Page(feed), Page(feed)
    early.look()
    assert early.steps == [1, 2, 3]
    for number in range(4, 40):
        writer.emit(step(number))
        early.look()
        if number > 20:
            late.take()
    assert early.steps == late.steps == list(range(1, 40))
    assert early.rows == late.rows
    assert early.state["panel"]["state"] == "RUNNING"
    assert late.state["row"]["progress"]["done"] == 39


def test_a_page_that_comes_back_gets_only_what_is_new(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=50, ended=None)
    feed = open_run("r-1")
    page = Page(feed)
    page.look()
    worker(store, "r-1").emit(step(51))
    page.cursor = None  # The connection was lost; `have` is what it says.
    frames = page.look()
    rows = next(frame for frame in frames if frame.kind == "rows")
    assert (rows.data["first"], len(rows.payload or b"")) == (50, row_bytes(COLUMNS))
    assert page.steps == list(range(1, 52))


@pytest.mark.parametrize(
    "have",
    [{"generation": "other-0", "rows": 3}, {"generation": 1}, {"rows": -1}, {"rows": "x"}],
)
def test_a_wrong_hint_gets_all_rows(store: RunStore, open_run: Any, have: dict[str, Any]) -> None:
    make_run(store, "r-1", steps=5)
    page = Page(open_run("r-1"))
    page.have = have
    page.look()
    assert page.steps == [1, 2, 3, 4, 5]


def test_nothing_new_is_no_message(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=5)
    page = Page(open_run("r-1"))
    assert {frame.kind for frame in page.look()} == {"state", "rows"}
    assert page.look() == []


def test_steps_that_a_restart_did_again_replace_the_old(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=8, ended=None)
    page = Page(open_run("r-1"))
    page.look()
    writer = worker(store, "r-1")
    writer.emit(RestartEvent(from_step=4, cause="worker died"))
    page.look()
    assert page.steps == [1, 2, 3, 4]
    writer.emit(step(5, loss=9.0))
    page.look()
    assert page.steps == [1, 2, 3, 4, 5]
    current = Page(page.feed)
    current.take()
    assert current.rows == page.rows


def test_the_state_shows_notes_log_and_attempts(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=2)
    folder = store.folder("r-1")
    folder.logs.mkdir()
    (folder.logs / "driver-1.log").write_text("hello\n")
    store.annotate("r-1", title="t", note="n", starred=True)
    page = Page(open_run("r-1"))
    page.look()
    state = page.state
    assert (state["row"]["title"], state["row"]["starred"], state["note"]) == ("t", True, "n")
    assert (state["attempts"], state["log_size"], state["is_over"]) == ([1], 6, True)


def test_a_panel_says_what_its_run_differs_in(store: RunStore, followers: Followers) -> None:
    make_run(store, "r-1", steps=1, learning_rate=1e-4)
    make_run(store, "r-2", steps=1, learning_rate=2e-3)
    rows = RunRows(store, followers)
    rows.open()
    page = Page(RunFeed("r-2", followers=followers, store=store, differs=rows.differs))
    page.look()
    assert page.state["row"]["differs"] == ""  # The list was not read yet.
    rows.look()
    time.sleep(1.0)  # Until the feed's clock.
    page.look()
    assert page.state["row"]["differs"] == "lr 2e-3"
    page.feed.close()
    rows.close()


def test_a_deleted_run_is_reported(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=2)
    feed = open_run("r-1")
    feed.poll()
    store.delete("r-1")
    with pytest.raises(RunNotFoundError):
        feed.poll()


def test_one_follower_serves_the_list_and_all_panels(
    store: RunStore, followers: Followers, runs_feed: RunsFeed, open_run: Any
) -> None:
    make_run(store, "r-1", steps=2, ended=None)
    Page(runs_feed).look()
    open_run("r-1"), open_run("r-1")
    assert len(followers) == 1


def test_the_list_comes_whole_and_then_as_changes(store: RunStore, runs_feed: RunsFeed) -> None:
    make_run(store, "r-1", steps=4, created_s=1.0)
    make_run(store, "r-2", steps=2, created_s=2.0, ended=None)
    page = Page(runs_feed)
    assert page.take() == []  # Not looked yet: no list is not an empty list.
    page.look()
    assert list(page.runs) == ["r-2", "r-1"]
    assert page.runs["r-1"]["state"] == "SUCCEEDED"
    assert len(page.runs["r-1"]["curve"]) == 4
    assert page.look() == []
    worker(store, "r-2").emit(step(3))
    frames = page.look()
    assert [row["run_id"] for row in frames[0].data["runs"]] == ["r-2"]
    assert page.runs["r-2"]["progress"]["done"] == 3
    store.annotate("r-1", title="mine")
    page.look()
    assert page.runs["r-1"]["title"] == "mine"
    store.delete("r-1")
    page.look()
    assert list(page.runs) == ["r-2"]


def test_an_ended_run_is_let_go_and_a_retry_brings_it_back(
    store: RunStore, followers: Followers, runs_feed: RunsFeed
) -> None:
    make_run(store, "r-1", steps=2, ended=None)
    page = Page(runs_feed)
    page.look()
    assert len(followers) == 1
    worker(store, "r-1").emit(EndEvent(state="FAILED", message="boom", remedy="mend"))
    page.look()
    row = page.runs["r-1"]
    assert (row["state"], row["message"], row["remedy"]) == ("FAILED", "boom", "mend")
    assert len(followers) == 0
    add_attempt(store, "r-1", 2)
    worker(store, "r-1", attempt=2).emit(step(1))
    page.look()
    assert (page.runs["r-1"]["state"], page.runs["r-1"]["attempt"]) == ("RUNNING", 2)


class NoFollowers(Followers):
    """Fails as soon as a run is followed."""

    def take(self, ref: str) -> Watched:
        raise AssertionError(f"the journal of {ref} was read")


def test_a_new_server_reads_no_journal_of_an_ended_run(
    store: RunStore, runs_feed: RunsFeed
) -> None:
    make_run(store, "r-1", steps=4)
    Page(runs_feed).look()
    again = RunStore()
    feed = RunsFeed(RunRows(again, NoFollowers(Backend(store=again))))
    page = Page(feed)
    page.look()
    feed.close()
    assert page.runs["r-1"]["progress"]["done"] == 4


def test_a_long_ended_run_opens_without_its_journal(
    store: RunStore,
) -> None:
    make_run(store, "r-1", steps=8)
    first = Page(RunFeed("r-1", followers=_keeping(store), store=store))
    first.look()
    first.feed.close()
    _spoil_journal(store, "r-1")
    page = Page(RunFeed("r-1", followers=_keeping(store), store=store))
    page.look()
    assert page.rows == first.rows
    assert page.state == first.state
    page.feed.close()


def test_a_run_that_leaves_the_list_keeps_its_panel_until_it_is_deleted(store: RunStore) -> None:
    make_run(store, "r-1", steps=8, created_s=1.0)
    followers = _keeping(store)
    rows = RunRows(store, followers, max_runs=1)
    page = Page(RunsFeed(rows))
    page.look()
    with followers.watching("r-1"):
        pass
    fingerprint = store.fingerprint("r-1")
    assert read_cached("r-1", fingerprint=fingerprint)
    make_run(store, "r-2", steps=1, created_s=2.0)
    page.look()
    assert list(page.runs) == ["r-2"]
    assert read_cached("r-1", fingerprint=fingerprint)
    store.delete("r-2")
    page.look()
    assert list(page.runs) == ["r-1"]
    store.delete("r-1")
    page.look()
    assert read_cached("r-1", fingerprint=fingerprint) is None
    page.feed.close()


def test_what_was_kept_of_a_panel_ends_with_a_retry(
    store: RunStore,
) -> None:
    make_run(store, "r-1", steps=8)
    followers = _keeping(store)
    with followers.watching("r-1"):
        pass
    page = Page(RunFeed("r-1", followers=followers, store=store))
    page.look()
    add_attempt(store, "r-1", 2)
    worker(store, "r-1", attempt=2).emit(step(1, loss=7.0))
    page.look()
    assert page.steps == [1]
    assert page.state["row"]["attempt"] == 2
    assert not page.state["is_over"]
    page.feed.close()


def _keeping(store: RunStore) -> Followers:
    """Followers that keep the panel of a run with five steps or more."""
    return Followers(Backend(store=store), min_rows=5)


def _spoil_journal(store: RunStore, run_id: str) -> None:
    """Overwrite the journal so that only a reader of its content can notice."""
    for file in store.folder(run_id).journal.iterdir():
        before = file.stat()
        file.write_bytes(b"x" * before.st_size)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
