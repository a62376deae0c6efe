"""Compare in a narrow and a wide Lab: everything can be reached, and its tables stay readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from llmops_kernel.store.store import RunStore
from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage, opened
from tests.browser.native.accessible import assert_accessible
from tests.server.runs import make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "meta-llama-3-8b-instruct-menu-items-lora-rank-64-cosine-{}-260901-101500"
WIDTHS = (1100, 1920)
VIEW = ".llmops-compare:visible"
# The element that scrolls the view: the view itself or one of its ancestors.
SCROLLER = """() => {
  let element = [...document.querySelectorAll('.llmops-compare')]
    .find(view => view.offsetParent);
  while (element && !(/auto|scroll/.test(getComputedStyle(element).overflowY)
      && element.scrollHeight > element.clientHeight)) {
    element = element.parentElement;
  }
  return element;
}"""
TOP = f"() => ({SCROLLER})()?.scrollTop ?? -1"
TALL_ROWS = """limit => [...document.querySelectorAll('.llmops-compare table tr')]
  .filter(row => row.offsetParent && row.offsetHeight > limit)
  .map(row => `${row.offsetHeight} px: ${row.textContent}`)"""


def _config(seed: int) -> dict[str, Any]:
    """Each of its 150 values differs from one seed to the next."""
    sections = {f"section_{number}": {} for number in range(10)}
    for number in range(150):
        keys = sections[f"section_{number % 10}"]
        keys[f"a_rather_long_name_of_a_setting_{number}"] = f"/data/experiments/{seed}/{number}"
    return {"optimizer": {"learning_rate": 1e-4 * seed}, **sections}


@pytest.fixture(scope="module")
def run_ids(lab: Lab) -> Iterator[list[str]]:
    """The runs are gone afterwards: other tests count theirs."""
    store = RunStore(lab.home)
    ids = [LONG.format(f"{number}a1b") for number in range(1, 7)]
    for number, run_id in enumerate(ids, start=1):
        make_run(
            store, run_id, steps=30, created_s=1_790_000_000.0 + number, config=_config(number)
        )
    yield ids
    for run_id in ids:
        store.delete(run_id)


@pytest.fixture
def tab(chromium: Any, lab: Lab) -> Iterator[LabPage]:
    with opened(chromium, lab, "compare", width=1100, height=800) as tab:
        yield tab


def _open(tab: LabPage, run_ids: list[str]) -> None:
    tab.command("llmops:compare-runs", runIds=run_ids)
    view = tab.page.locator(VIEW)
    view.locator("canvas").first.wait_for(timeout=30_000)
    if len(run_ids) > 2:
        more = view.get_by_text(re.compile("^Show 1[0-9]+ more that differ$"))
        more.click(timeout=30_000)
        view.get_by_text("a_rather_long_name_of_a_setting_149").first.wait_for()
        return
    # Of many values the first are shown.
    view.get_by_text("section_9.a_rather_long_name_of_a_setting_149").wait_for(state="detached")
    more = view.get_by_text(re.compile("^Show all 15[01]$"))
    more.first.wait_for(timeout=30_000)  # It may come after the chart.
    while more.count():
        more.first.click()
    view.get_by_text("section_9.a_rather_long_name_of_a_setting_149").first.wait_for()


def _top(tab: LabPage) -> float:
    tab.page.wait_for_timeout(300)  # Scrolling is animated.
    return float(tab.page.evaluate(TOP))


@pytest.mark.parametrize("number", [2, 6])
def test_everything_can_be_scrolled_to(tab: LabPage, run_ids: list[str], number: int) -> None:
    _open(tab, run_ids[:number])
    # A matrix and its curves fit into 800 pixels where the window is wide.
    height = 800 if number == 2 else 480
    for width in WIDTHS:
        tab.page.set_viewport_size({"width": width, "height": height})
        first = ".llmops-compare-heads" if number == 2 else ".llmops-matrix thead"
        head = tab.page.locator(f"{VIEW} {first}")
        head.scroll_into_view_if_needed()
        box = tab.page.locator(VIEW).bounding_box()
        tab.page.mouse.move(box["x"] + box["width"] / 2, height - 100)
        before = _top(tab)
        assert before >= 0, "nothing scrolls the comparison"
        tab.page.mouse.wheel(0, 500 if number == 2 else 100)
        by_wheel = _top(tab)
        assert by_wheel > before
        head.click(position={"x": 1, "y": 1}) if by_wheel == 0 else tab.page.mouse.down()
        tab.page.mouse.up()
        tab.page.keyboard.press("PageDown")
        assert _top(tab) > by_wheel
        tab.page.keyboard.press("End")
        last = tab.page.locator(f"{VIEW} tr").last
        _top(tab)
        assert last.bounding_box()["y"] < height
        tab.page.keyboard.press("Home")
        assert _top(tab) == 0


@pytest.mark.parametrize("number", [2, 6])
def test_rows_are_a_few_lines_high(tab: LabPage, run_ids: list[str], number: int) -> None:
    _open(tab, run_ids[:number])
    for width in WIDTHS:
        tab.page.set_viewport_size({"width": width, "height": 800})
        tables = tab.page.locator(f"{VIEW} table").first
        tables.scroll_into_view_if_needed()
        tab.page.wait_for_timeout(400)
        assert tab.page.evaluate(TALL_ROWS, 90) == []
    tab.shots(f"compare-{number}")


def test_several_runs_are_one_matrix_with_the_curves_in_sight(
    tab: LabPage, run_ids: list[str]
) -> None:
    tab.page.set_viewport_size({"width": 1100, "height": 700})
    tab.command("llmops:show-runs")
    tab.command("llmops:compare-runs", runIds=run_ids)
    view = tab.page.locator(VIEW)
    curve = view.locator("canvas").first
    curve.wait_for(timeout=30_000)
    lines = view.locator(".llmops-matrix tbody tr")
    lines.nth(5).wait_for(timeout=30_000)
    assert lines.count() == 6
    box = curve.bounding_box()
    assert box["y"] < 560, "the curves must be seen without scrolling"
    # The learning rate of every run is in one column, and no number is broken.
    head = view.locator(".llmops-matrix thead th").nth(1)
    assert (head.inner_text(), head.get_attribute("title")) == ("lr", "optimizer.learning_rate")
    rates = [line.locator("td").first.inner_text() for line in lines.all()]
    assert rates == ["1e-4", "2e-4", "3e-4", "4e-4", "5e-4", "6e-4"]
    assert lines.first.locator("td").first.bounding_box()["height"] < 50
    # Another baseline: it has no changes, the first run has.
    loss = view.locator(".llmops-matrix thead th").all_inner_texts().index("loss") - 1
    assert "\n" not in lines.nth(0).locator("td").nth(loss).inner_text()
    lines.nth(2).get_by_role("radio").check()
    view.locator(".llmops-matrix tr:nth-child(3)[data-base='true']").wait_for()
    assert "\n" in lines.nth(0).locator("td").nth(loss).inner_text()
    assert "\n" not in lines.nth(2).locator("td").nth(loss).inner_text()
    assert_accessible(tab.page, ".llmops-compare-widget")
    tab.page.set_viewport_size({"width": 1100, "height": 800})


def test_what_differs_comes_first_and_speed_is_folded(tab: LabPage, run_ids: list[str]) -> None:
    tab.command("llmops:compare-runs", runIds=run_ids[:2])
    view = tab.page.locator(VIEW)
    loss = view.locator(".llmops-compare-chart figcaption", has_text="loss").first
    loss.wait_for(timeout=30_000)
    differs = view.get_by_text("optimizer.learning_rate").first
    figures = view.locator(".llmops-compare-figures").first
    order = [part.bounding_box()["y"] for part in (differs, figures, loss)]
    assert order == sorted(order)
    assert "+" in figures.inner_text() or "same" in figures.inner_text()
    assert "tokens/s" not in view.inner_text()
    fold = view.get_by_text("Speed, memory and cost")
    fold.focus()
    tab.page.keyboard.press("Enter")
    chart = view.locator(".llmops-compare-chart", has_text="tokens/s")
    assert chart.locator("canvas").bounding_box()["width"] > 200
    assert "×" in view.locator(".llmops-compare-figures").nth(1).inner_text()
    assert_accessible(tab.page, ".llmops-compare-widget")
