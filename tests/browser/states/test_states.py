"""Queued, restarting and failed runs in Lab: rows of a narrow side bar, panel, status bar, log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.metrics.events import EndEvent, PhaseEvent, QueueEvent, RestartEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.store import RunStore
from tests.browser.lab import Lab
from tests.browser.lab_page import NARROW, LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.browser.native.keyboard import Keyboard
from tests.server.runs import make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BEFORE = "first-261123-101500-aaaa"
QUEUED = "queued-261123-101501-bbbb"
RESTARTING = "again-261123-101502-cccc"
FAILED = "failed-261123-101503-dddd"
REASON = f"needs 2 CPUs; 2 of 2 CPUs are used by run {BEFORE}"
PLACE = f"Place 1 of 2 in the queue: {REASON}"
NO_DISK = "The disk of /data/checkpoints is full: 512 MiB are needed and 3.1 MiB are free"
RAY = "2026-11-23 03:58:23,297\tINFO plugin.py:258 -- loss of a URI\n"
WORKER = "\x1b[36m(RayTrainWorker pid=20861)\x1b[0m "
LOG = (
    f"{RAY}Running entrypoint for job failed-1: python -m x eJyFUNtugzAM\n"
    + "".join(f"{WORKER}[llmops] 10:00:{n:02d} step {n} of 60, loss {n}.5\n" for n in range(60))
    + f"{RAY}my own print {'-' * 300} needle\n"
)
PANEL = ".lm-DockPanel .llmops-run:visible"


def driver(store: RunStore, run_id: str) -> JournalWriter:
    return JournalWriter([store.folder(run_id).journal], stream="1-driver", attempt=1)


@pytest.fixture
def store(lab: Lab) -> Iterator[RunStore]:
    """A store with a run in each state, as runs on another machine: nobody judges those."""
    store = RunStore(lab.home)
    for number, run_id in enumerate((BEFORE, RESTARTING, FAILED)):
        make_run(store, run_id, steps=15, ended=None, host="elsewhere", created_s=1e9 + number)
    make_run(store, QUEUED, ended=None, host="elsewhere", created_s=1e9 + 9)
    writer = driver(store, QUEUED)
    writer.emit(PhaseEvent(name="queue", state="begin"))
    writer.emit(QueueEvent(state="begin", reason=REASON, place=1, length=2))
    restart = RestartEvent(from_step=10, cause="worker rank 1 was killed", failures_left=2)
    driver(store, RESTARTING).emit(restart)
    folder = store.folder(FAILED)
    folder.logs.mkdir()
    (folder.logs / "driver-1.log").write_text(LOG)
    driver(store, FAILED).emit(EndEvent(state="FAILED", message=NO_DISK))
    yield store
    for run_id in (BEFORE, QUEUED, RESTARTING, FAILED):
        store.delete(run_id)


@pytest.fixture
def tab(chromium: Any, lab: Lab) -> Iterator[LabPage]:
    with opened(chromium, lab, "states", width=1100, height=900) as tab:
        yield tab


def row(tab: LabPage, run_id: str) -> Any:
    return tab.page.locator(f".llmops-runs-row[data-run-id='{run_id}']")


def test_each_state_has_its_reason_everywhere(store: RunStore, tab: LabPage) -> None:
    page = tab.page
    tab.command("llmops:show-runs")
    queued, failed = row(tab, QUEUED), row(tab, FAILED)
    queued.get_by_text(PLACE).wait_for()
    assert queued.get_attribute("data-state") == "QUEUED"
    restart = "Restart 1 of 3, from the checkpoint of step 10: worker rank 1 was killed"
    row(tab, RESTARTING).get_by_text(restart).wait_for()
    why = failed.locator(".llmops-runs-why")
    assert why.inner_text() == NO_DISK
    # In the row of a side bar of 250 px it is in sight.
    box, around = why.bounding_box(), failed.bounding_box()
    assert box["x"] + box["width"] <= around["x"] + around["width"] + 1
    assert box["height"] > 10
    page.get_by_role("button", name="(1 queued)").wait_for()
    tab.command("llmops:open-run", runId=QUEUED)
    page.locator(PANEL).get_by_text(PLACE).first.wait_for()
    tab.shots("states-queued", NARROW)
    assert_accessible(page, "#llmops-runs", ".llmops-status", f"[id='llmops-run-{QUEUED}']")
    tab.command("llmops:open-run", runId=RESTARTING)
    page.locator(PANEL).get_by_text(restart).first.wait_for()
    tab.shots("states-restarting", NARROW)


def test_the_log_has_the_training_and_a_search_its_count(store: RunStore, tab: LabPage) -> None:
    page = tab.page
    tab.command("llmops:open-run", runId=FAILED)
    page.locator(".llmops-runpanel-tabs:visible").get_by_role("tab", name="Log").click()
    lines = page.locator(".llmops-logview-lines pre")
    lines.get_by_text("step 59 of 60, loss 59.5").wait_for()
    assert "INFO" not in lines.inner_text()
    assert "RayTrainWorker" not in lines.inner_text()
    search = page.get_by_role("searchbox", name="Search the log")
    search.fill("loss 1")
    search.press("Enter")
    status = page.locator(".llmops-logview-search [role=status]")
    status.get_by_text("of 11").wait_for()
    search.fill("needle")
    search.press("Enter")
    status.get_by_text("1 of 1", exact=True).wait_for()
    # Far to the right in a long line, and in sight.
    mark, box = page.locator(".llmops-logview-found mark"), page.locator(".llmops-logview-lines")
    mark.get_by_text("needle").wait_for()
    hit, around = mark.bounding_box(), box.bounding_box()
    assert around["x"] <= hit["x"]
    assert hit["x"] + hit["width"] <= around["x"] + around["width"]
    tab.shot("states-log-match")
    tab.shots("states-log", NARROW)
    assert_accessible(page, f"[id='llmops-run-{FAILED}']")
    for name in ("Config & Code", "Attempts & Outputs", "Notes"):
        page.locator(".llmops-runpanel-tabs:visible").get_by_role("tab", name=name).click()
        page.get_by_role("tabpanel", name=name).locator("> *").first.wait_for()
        assert_accessible(page, f"[id='llmops-run-{FAILED}']")
    page.locator(".llmops-runpanel-tabs:visible").get_by_role("tab", name="Log").click()
    page.get_by_label("All lines").check()
    lines.get_by_text("INFO plugin.py").first.wait_for()


def test_a_run_is_found_read_and_compared_by_keyboard_alone(store: RunStore, tab: LabPage) -> None:
    page, keys = tab.page, Keyboard(tab.page)
    page.locator(".jp-LauncherCard").first.wait_for()
    page.wait_for_timeout(1500)  # The launcher takes the focus when it has been drawn.
    _open_from_the_side_bar(page, keys)
    _read_its_tabs_and_its_log(page, keys)
    _sort_and_filter_the_table(page, keys)
    _compare_two(page, keys)
    assert [error for error in tab.errors if "422" not in error] == []


def _open_from_the_side_bar(page: Any, keys: Keyboard) -> None:
    keys.palette("Show Runs")
    keys.go_to("input[aria-label='Filter runs']")
    keys.type(FAILED)
    page.locator(".llmops-runs-row").nth(1).wait_for(state="detached")
    keys.go_to(".llmops-runs-open")
    keys.press("Enter")
    page.locator(f"[id='llmops-run-{FAILED}']:visible").wait_for()


def _read_its_tabs_and_its_log(page: Any, keys: Keyboard) -> None:
    panel = f"[id='llmops-run-{FAILED}']"
    keys.go_to(f"{panel} [role='tab']")
    for name in ("Log", "Config & Code", "Attempts & Outputs", "Notes"):
        keys.press("ArrowRight")
        page.get_by_role("tabpanel", name=name).wait_for()
    keys.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    keys.go_to(f"{panel} input[type='search']")
    keys.type("loss 1")
    keys.press("Enter")
    page.locator(".llmops-logview-search [role=status]").get_by_text("1 of 11").wait_for()


def _sort_and_filter_the_table(page: Any, keys: Keyboard) -> None:
    keys.palette("Show All Runs as a Table")
    page.locator(".llmops-runtable-line[data-run-id]").first.wait_for(timeout=15_000)
    keys.go_to("input[aria-label='Filter by columns']", key="Shift+Tab")
    keys.type("host == 'elsewhere'")
    keys.press("Enter")
    page.locator(".llmops-runtable-counts").get_by_text("4 of").wait_for()
    keys.go_to(".llmops-runtable-head button")
    keys.press("ArrowRight", "Enter")
    page.locator("[role='columnheader'][aria-sort='ascending']").wait_for()


def _compare_two(page: Any, keys: Keyboard) -> None:
    keys.go_to(".llmops-runtable-scroll", key="Shift+Tab")
    keys.press("Home", "Space", "ArrowDown", "Space")
    page.get_by_text("2 selected").wait_for()
    keys.go_to(".llmops-runtable-bulk button", key="Shift+Tab")
    keys.go_to("[title='Compare 2 runs']", key="Shift+Tab")
    keys.press("Enter")
    page.locator(".llmops-compare:visible .llmops-compare-heads").wait_for()
