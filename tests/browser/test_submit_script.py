"""A Python file is submitted as a run from the file browser's context menu."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage
from tests.browser.simulated import SimulatedClusters, row

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_python_file_is_submitted_to_the_chosen_cluster(lab: Lab, lab_page: Any) -> None:
    (lab.work / "hello.py").write_text("print('hello')\n")
    (lab.work / "notes.txt").write_text("no script\n")
    tab = LabPage(lab_page, lab)
    SimulatedClusters(lab_page, row("team"))
    bodies: list[Any] = []

    def refuse(route: Any) -> None:
        if route.request.method == "POST":
            bodies.append(route.request.post_data_json)
            route.fulfill(status=409, json={"message": "not today", "remedy": "", "problems": []})
        else:
            route.continue_()

    lab_page.route("**/llmops/runs*", refuse)
    tab.open()
    command = tab.menu_item("Submit to Cluster…")
    lab_page.locator(".jp-DirListing-item").filter(has_text="notes.txt").click(button="right")
    lab_page.locator(".lm-Menu").wait_for()
    assert not command.is_visible()
    lab_page.keyboard.press("Escape")
    lab_page.locator(".jp-DirListing-item").filter(has_text="hello.py").click(button="right")
    command.click()
    dialog = lab_page.locator(".jp-Dialog")
    dialog.get_by_text("Runs hello.py once, as `python hello.py` would").wait_for(timeout=20_000)
    dialog.get_by_label("Workers").fill("2")
    dialog.get_by_label("Arguments").fill("--note 'two words")
    dialog.get_by_text("no closing quotation").wait_for(timeout=20_000)
    dialog.get_by_label("Arguments").press_sequentially("'")
    dialog.get_by_text("Runs hello.py --note 'two words' on 2 worker(s)").wait_for(timeout=20_000)
    tab.shots("submit-script-form")
    lab_page.keyboard.press("Enter")
    lab_page.get_by_text("not today").first.wait_for(timeout=20_000)
    tab.shot("submit-script")
    [body] = bodies
    assert (body["path"], body["cluster"]) == ("hello.py", "team")
    assert body["overrides"] == ["num_workers=2", "args=\"--note 'two words'\""]
    lab_page.get_by_role("button", name="Close").or_(
        lab_page.get_by_role("button", name="OK")
    ).first.click()
    tab.command("llmops:submit-script", path="hello.py")
    assert dialog.get_by_label("Workers").input_value() == "2", "the last start is kept"
