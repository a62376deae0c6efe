"""Entries of Lab's own menus, the form that keeps what was typed, and lists by the arrow keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import SIZES, LabPage
from tests.browser.native.accessible import assert_accessible
from tests.browser.simulated import SimulatedClusters, row

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOCUSED = "() => document.activeElement.closest('[data-cluster]')?.dataset.cluster"


@pytest.fixture
def tab(lab: Lab, lab_page: Any) -> LabPage:
    opened = LabPage(lab_page, lab)
    SimulatedClusters(
        lab_page,
        row("first"),
        row("second", info={"gpus_used": 0}),
        row("third", info={"num_cpus": 4, "gpus_used": 0}),
    )
    return opened


def see_entries(tab: LabPage, menu: str, *labels: str, below: str = "") -> None:
    """Open a menu of the bar, and its submenu `below`; wait until it has these entries."""
    page = tab.page
    page.locator(".lm-MenuBar-itemLabel").get_by_text(menu, exact=True).click()
    if below:
        tab.menu_item(below).first.click()
    for label in labels:
        tab.menu_item(label).first.wait_for()


def close_menu(page: Any) -> None:
    """Close it by a click beside it: Escape does not reach a menu that has lost the focus."""
    menus = page.locator(".lm-Menu:visible")
    for _ in range(50):
        if menus.count() == 0:
            return
        page.mouse.click(page.viewport_size["width"] - 12, 8)
        page.wait_for_timeout(100)
    raise AssertionError("the menu stays open")


def test_the_menus_of_lab_have_our_entries(tab: LabPage) -> None:
    page = tab.page
    tab.open()
    see_entries(tab, "File", "New Training Config", "New Ray Cluster…", below="New")
    tab.shot("menus-file")
    close_menu(page)
    see_entries(tab, "Run", "Check This Config", "Submit This Config", "Submit This Script…")
    tab.shot("menus-run")
    close_menu(page)
    see_entries(tab, "Help", "LLM Training: Getting Started and Glossary")
    tab.menu_item("LLM Training: Getting Started and Glossary").click()
    page.locator(".llmops-help dt", has_text="MFU").wait_for()
    tab.shots("help-first-steps")
    assert_accessible(page, ".llmops-help")
    page.locator(".llmops-help").get_by_role("button", name="Start a cluster").click()
    page.locator(".llmops-form").wait_for()
    assert page.locator(".jp-Dialog").count() == 0


def test_the_form_keeps_what_was_typed_and_says_that_a_name_is_taken(tab: LabPage) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    page = tab.page
    tab.open()
    tab.command("llmops:new-cluster")
    name = page.get_by_label("name", exact=True)
    size = page.get_by_label("object_store_memory_bytes", exact=True)
    name.fill("second")
    exists = page.locator(".llmops-form-exists")
    exists.wait_for()
    assert "second already exists (ready)" in exists.inner_text()
    size.fill("2 GiB")
    yaml = page.locator(".llmops-form-yaml")
    yaml.get_by_text("2147483648").wait_for()
    tab.shots("form-name-is-taken", (*SIZES, (1100, 900)))
    assert_accessible(page, ".llmops-form")
    choice = page.get_by_label("Template", exact=True)
    here = choice.input_value()
    other = next(
        value
        for value in choice.locator("option").evaluate_all("all => all.map(one => one.value)")
        if value != here
    )
    choice.select_option(other)
    page.get_by_role("button", name="Discard changes").wait_for(state="detached")
    choice.select_option(here)
    page.get_by_role("button", name="Discard changes").wait_for()
    expect(name).to_have_value("second")
    expect(size).to_have_value("2 GiB")
    tab.reload()
    tab.command("llmops:new-cluster")
    yaml.get_by_text("2147483648").wait_for()
    expect(name).to_have_value("second")
    name.fill("fourth")
    exists.wait_for(state="detached")
    page.get_by_role("button", name="Discard changes").click()
    yaml.get_by_text("2147483648").wait_for(state="detached")


def test_arrow_keys_move_through_the_clusters_of_one_machine(tab: LabPage) -> None:
    page = tab.page
    tab.open()
    tab.command("llmops:show-clusters")
    rows = page.locator(".llmops-clusters-open")
    rows.nth(2).wait_for()
    rows.first.focus()
    seen = [page.evaluate(FOCUSED)]
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Home", "End", "ArrowUp"):
        page.keyboard.press(key)
        seen.append(page.evaluate(FOCUSED))
    assert seen == ["first", "second", "third", "third", "first", "third", "second"]
    page.locator(".llmops-status", has_text="3 clusters · GPUs 1/2").wait_for()
