"""The feeds of runs: what a page gets first, then, and after a lost connection."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import RunNotFoundError
from llmops_kernel.metrics.events import EndEvent, RestartEvent
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.view import RunView
from llmops_kernel.server import followers as followers_module
from llmops_kernel.server.feeds import Frame
from llmops_kernel.server.followers import Followers
from llmops_kernel.server.run_feed import RunFeed, RunsFeed
from llmops_kernel.server.run_rows import RunRows
from llmops_kernel.widgets.columns import FIELDS, ROW_BYTES
from tests.server.runs import add_attempt, make_run, step, worker


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    return RunStore()


@pytest.fixture
def followers(store: RunStore) -> Iterator[Followers]:
    found = Followers(store)
    yield found
    assert len(found) == 0, "somebody kept a follower"


class Page:
    """What one browser makes of a feed's frames."""

    def __init__(self, feed: RunsFeed | RunFeed) -> None:
        self.feed = feed
        self.cursor: Any = None
        self.have: dict[str, Any] = {}
        self.rows = b""
        self.state: dict[str, Any] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def look(self) -> list[Frame]:
        self.feed.poll()
        return self.take()

    def take(self) -> list[Frame]:
        frames, self.cursor = self.feed.news(self.cursor, self.have)
        for frame in frames:
            json.dumps(frame.data, allow_nan=False)
            self._take(frame)
        return frames

    def _take(self, frame: Frame) -> None:
        if frame.kind == "runs":
            if frame.data["whole"]:
                self.runs.clear()
            for run_id in frame.data["removed"]:
                del self.runs[run_id]
            self.runs |= {row["run_id"]: row for row in frame.data["runs"]}
        elif frame.kind == "state":
            self.state = frame.data
        elif frame.kind == "rows":
            first = frame.data["first"] * ROW_BYTES
            assert first <= len(self.rows)
            self.rows = self.rows[:first] + (frame.payload or b"")
            self.have = {"generation": frame.data["generation"], "rows": frame.data["count"]}

    @property
    def steps(self) -> list[int]:
        values = struct.unpack(f"<{len(self.rows) // 4}f", self.rows)
        return [int(value) for value in values[:: len(FIELDS)]]


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
    assert late.state["row"]["last_step"] == 39


def test_a_page_that_comes_back_gets_only_what_is_new(store: RunStore, open_run: Any) -> None:
    make_run(store, "r-1", steps=50, ended=None)
    feed = open_run("r-1")
    page = Page(feed)
    page.look()
    worker(store, "r-1").emit(step(51))
    page.cursor = None  # The connection was lost; `have` is what it says.
    frames = page.look()
    rows = next(frame for frame in frames if frame.kind == "rows")
    assert (rows.data["first"], len(rows.payload or b"")) == (50, ROW_BYTES)
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
    fresh = Page(page.feed)
    fresh.take()
    assert fresh.rows == page.rows


def test_the_state_tells_notes_log_and_attempts(store: RunStore, open_run: Any) -> None:
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


def test_a_deleted_run_is_told(store: RunStore, open_run: Any) -> None:
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
    assert len(page.runs["r-1"]["sparkline"]) == 4
    assert page.look() == []
    worker(store, "r-2").emit(step(3))
    frames = page.look()
    assert [row["run_id"] for row in frames[0].data["runs"]] == ["r-2"]
    assert page.runs["r-2"]["last_step"] == 3
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


def test_a_new_server_reads_no_journal_of_an_ended_run(
    store: RunStore, followers: Followers, runs_feed: RunsFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(store, "r-1", steps=4)
    Page(runs_feed).look()
    taken: list[str] = []
    monkeypatch.setattr(followers, "take", taken.append)
    feed = RunsFeed(RunRows(RunStore(), followers))
    page = Page(feed)
    page.look()
    feed.close()
    assert page.runs["r-1"]["last_step"] == 4
    assert taken == []


def test_a_long_ended_run_opens_without_its_journal(
    store: RunStore, open_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers_module, "MIN_ROWS", 5)
    make_run(store, "r-1", steps=8)
    first = Page(open_run("r-1"))
    first.look()
    monkeypatch.setattr(RunView, "apply", _never)
    fresh = RunFeed("r-1", followers=Followers(store), store=store)
    page = Page(fresh)
    page.look()
    assert page.rows == first.rows
    assert page.state == first.state
    fresh.close()
    monkeypatch.undo()


def test_what_was_kept_of_a_panel_ends_with_a_retry(
    store: RunStore, followers: Followers, open_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers_module, "MIN_ROWS", 5)
    make_run(store, "r-1", steps=8)
    with followers.watching("r-1"):
        pass
    page = Page(open_run("r-1"))
    page.look()
    add_attempt(store, "r-1", 2)
    worker(store, "r-1", attempt=2).emit(step(1, loss=7.0))
    page.look()
    assert page.steps == [1]
    assert page.state["row"]["attempt"] == 2
    assert not page.state["is_over"]


def _never(*_: Any) -> None:
    raise AssertionError("the journal was read")
