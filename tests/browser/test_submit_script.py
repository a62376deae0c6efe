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
    command = lab_page.locator(".lm-Menu-itemLabel").get_by_text("Submit as Run")
    lab_page.locator(".jp-DirListing-item").filter(has_text="notes.txt").click(button="right")
    lab_page.locator(".lm-Menu").wait_for()
    assert not command.is_visible()
    lab_page.keyboard.press("Escape")
    lab_page.locator(".jp-DirListing-item").filter(has_text="hello.py").click(button="right")
    command.click()
    lab_page.get_by_text("not today").first.wait_for(timeout=20_000)
    tab.shot("submit-script")
    assert [(body["path"], body["cluster"]) for body in bodies] == [("hello.py", "team")]
