"""Runs of very many steps: fewer rows are sent, and panels of ended ones are kept."""

from __future__ import annotations

from llmops_kernel.server.runs.feed import RunFeed, RunsFeed
from llmops_kernel.server.runs.followers import Followers, read_cached
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from tests.server.feeds.page import Page
from tests.server.runs import make_run, step, worker


def test_of_very_many_steps_a_page_gets_those_that_stand_for_all(store: RunStore) -> None:
    make_run(store, "r-1", steps=2500, ended=None)
    followers = Followers(Backend(store=store), max_cells=30_000)
    page = Page(RunFeed("r-1", followers=followers, store=store))
    page.look()
    panel = page.state["panel"]
    assert 64 < len(page.steps) < 1200
    assert page.steps[0] == 1
    assert page.steps[-64:] == list(range(2437, 2501))
    assert page.steps == sorted(set(page.steps))
    assert (panel["every_row"], panel["stride"]) == (False, 8)
    assert panel["progress_text"] == "step 2,500 of 2,500"
    before = page.have["generation"]
    worker(store, "r-1").emit(step(2501))
    page.look()
    assert (page.steps[-1], page.have["generation"]) == (2501, before)
    page.feed.close()


def test_of_a_run_that_a_page_can_hold_it_gets_every_step(store: RunStore) -> None:
    make_run(store, "r-1", steps=8)
    page = Page(RunFeed("r-1", followers=Followers(Backend(store=store)), store=store))
    page.look()
    assert (page.state["panel"]["every_row"], page.state["panel"]["stride"]) == (True, 1)
    page.feed.close()


def test_a_list_holds_few_rows_of_live_runs_and_keeps_the_panels_of_ended_ones(
    store: RunStore,
) -> None:
    make_run(store, "live-1", steps=700, ended=None)
    make_run(store, "done-1", steps=700)
    followers = Followers(Backend(store=store), min_rows=5, live_cells=100)
    page = Page(RunsFeed(RunRows(store, followers)))
    page.look()
    assert page.runs["live-1"]["progress"]["done"] == 700
    with followers.watching("live-1") as watched:
        assert watched.num_rows <= 300
    kept = read_cached("done-1", fingerprint=store.fingerprint("done-1"))
    assert kept is not None
    assert kept.panel.every_row
    worker(store, "live-1").emit(step(701))
    page.look()
    assert page.runs["live-1"]["progress"]["done"] == 701
    page.feed.close()
