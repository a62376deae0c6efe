"""200 runs of six sweeps in the table: found, sorted, opened by keyboard, tagged and deleted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.store.store import RunStore
from tests.browser.lab import ARTIFACTS, Lab
from tests.browser.lab_page import NARROW, THEMES, LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.browser.runs.sweeps import add_sweeps
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LINES = ".llmops-runtable-line[data-run-id]"
COUNT = ".llmops-runtable-counts"


@pytest.fixture(scope="module")
def store(lab: Lab) -> Iterator[RunStore]:
    """The runs are gone afterwards: other tests count theirs."""
    store = RunStore(lab.home)
    ids = add_sweeps(store)
    yield store
    for run_id in ids:
        shutil.rmtree(lab.home / "runs" / run_id, ignore_errors=True)


@pytest.fixture
def tab(chromium: Any, lab: Lab, store: RunStore) -> Iterator[LabPage]:
    with opened(chromium, lab, "run-table", width=1920, height=1080) as tab:
        yield tab


def waited(tab: LabPage, where: str, expected: str) -> None:
    tab.page.locator(".llmops-runtable-filter").fill(where)
    tab.page.locator(COUNT, has_text=expected).wait_for(timeout=15_000)


def picture(tab: LabPage, name: str) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    for theme in THEMES:
        tab.theme(theme)
        for width, height in NARROW:
            tab.page.set_viewport_size({"width": width, "height": height})
            tab.page.wait_for_timeout(250)
            path = ARTIFACTS / f"run-table-{name}-{theme.lower()}-{width}.png"
            tab.page.screenshot(path=str(path))


def test_runs_are_found_compared_and_opened(tab: LabPage, store: RunStore) -> None:
    page = tab.page
    tab.command("llmops:show-run-table")
    page.locator(LINES).first.wait_for(timeout=15_000)
    waited(tab, "", "200 of 200 runs")
    # Only the lines in sight are in the page.
    assert page.locator(LINES).count() < 60
    waited(tab, "name == 'menu-rate' and method.r > 8", "24 of 200 runs")
    waited(tab, "name == 'menu-rate'", "36 of 200 runs")
    head = page.locator(".llmops-runtable-head")
    head.get_by_text("eval loss", exact=True).click()
    page.locator("[aria-sort='ascending']").wait_for()
    first = page.locator(LINES).first
    first.locator("text=lr 1e-3").wait_for()
    assert "r " in first.inner_text()
    tab.command("llmops:show-run-table", where="name == 'menu-rate'", rays=True)
    page.locator(".llmops-runtable-rays path").first.wait_for()
    assert page.locator(".llmops-runtable-rays path").count() == 36
    tab.command(
        "llmops:show-run-table",
        group="method.r",
        rays=True,
        colour_by="loss",
        where="'menu' in name",
    )
    page.locator(".llmops-runtable-group").first.wait_for()
    picture(tab, "rays")
    assert_accessible(page, ".llmops-runtable")
    # Beside it the list names its runs by what differs as well.
    tab.command("llmops:show-runs")
    page.locator(".llmops-runs-name", has_text="lr 4e-3 · r 128").first.wait_for()
    page.screenshot(path=str(ARTIFACTS / "run-table-side-bar.png"))
    # A wrong filter says what is wrong, and the runs stay.
    page.locator(".llmops-runtable-filter").fill("evel_loss < 1")
    page.get_by_text("No run has a column 'evel_loss'.").wait_for()
    assert page.locator(LINES).count() > 5
    tab.command("llmops:show-run-table", group="name", sort="eval_loss")
    page.locator(".llmops-runtable-group", has_text="llama-decay").wait_for()
    assert [error for error in tab.errors if "422" not in error] == []


def test_the_table_is_used_by_keyboard_alone(tab: LabPage, store: RunStore) -> None:
    page = tab.page
    tab.command("llmops:show-run-table", sort="run", where="name == 'llama-decay'")
    page.locator(LINES).first.wait_for(timeout=15_000)
    page.locator(".llmops-runtable-scroll").focus()
    for key in ("ArrowDown", "ArrowDown", "Space", "ArrowDown", "Space"):
        page.keyboard.press(key)
    page.get_by_text("2 selected").wait_for()
    assert_accessible(page, ".llmops-runtable")
    active = page.locator("[data-active='true']").get_attribute("data-run-id")
    page.keyboard.press("End")
    page.locator(f"{LINES}[data-active='true']").wait_for()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(f".lm-TabBar-tab.lm-mod-current[data-id*='{active}']").wait_for()
    assert [error for error in tab.errors if "422" not in error] == []


def test_several_runs_are_tagged_and_deleted(tab: LabPage, store: RunStore) -> None:
    page = tab.page
    tab.command("llmops:show-run-table", where="name == 'tags-method'", sort="run")
    page.locator(LINES).first.wait_for(timeout=15_000)
    boxes = page.locator(f"{LINES} input[type='checkbox']")
    for number in range(3):
        boxes.nth(number).check()
    ids = [page.locator(LINES).nth(number).get_attribute("data-run-id") for number in range(3)]
    page.get_by_role("button", name="Tags…").click()
    page.locator(".jp-Dialog input").fill("best, paper")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.locator(".llmops-runtable-tag", has_text="paper").nth(2).wait_for()
    waited(tab, "'best' in tags", "3 of ")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_text("This deletes their journals and logs").wait_for()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.get_by_text("No run matches").wait_for(timeout=20_000)
    until_s = time.monotonic() + 20
    while set(ids) & set(store.ids()) and time.monotonic() < until_s:
        page.wait_for_timeout(100)
    assert set(ids) & set(store.ids()) == set()
    assert [error for error in tab.errors if "422" not in error] == []


_FOCUS = """() => {
  const { activeElement: focused } = document;
  return [focused.className, focused.closest('.llmops-runs-row')?.dataset.runId ?? ''];
}"""


def test_the_list_of_runs_is_one_place_for_tab(tab: LabPage, store: RunStore) -> None:
    page = tab.page
    tab.command("llmops:show-runs")
    rows = page.locator(".llmops-runs-row")
    rows.nth(30).wait_for(timeout=15_000)
    first, second = (rows.nth(number).get_attribute("data-run-id") for number in (0, 1))
    page.locator(".llmops-runs-filter input").focus()
    passed = []
    while not passed or passed[-1][1] != first:
        page.keyboard.press("Tab")
        passed.append(page.evaluate(_FOCUS))
        assert len(passed) < 8, passed
    while passed[-1][1] == first:
        page.keyboard.press("Tab")
        passed.append(page.evaluate(_FOCUS))
        assert len(passed) < 16, passed
    # Behind that one row Tab leaves its group; the arrows go through the rows.
    assert passed[-1][1] == ""
    rows.first.locator(".llmops-runs-open").focus()
    until(lambda: page.evaluate(_FOCUS)[1] == first)
    page.keyboard.press("ArrowDown")
    # The row takes the focus when it was drawn.
    until(lambda: page.evaluate(_FOCUS)[1] == second)
    page.keyboard.press("Space")
    page.locator(f".llmops-runs-row[data-run-id='{second}'] input:checked").wait_for()
    page.keyboard.press("Space")
    page.keyboard.press("End")
    assert page.evaluate(_FOCUS)[1] not in (first, second)
