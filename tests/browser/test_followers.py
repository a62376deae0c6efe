"""Two browsers and a notebook on one growing run: each sees every step, and sees it once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.lab import ROOT, Lab, Notebook
from tests.browser.lab_page import LabPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN_ID = "shared-260901-101500-a1b2"
STEPS = 400
PANEL = ".lm-DockPanel .llmops-run:visible"
CELLS = (
    "import llmops_kernel as llmops\n"
    "from llmops_kernel.views import columns\n"
    "sent = []\n"
    "advance = columns.RowCursor.advance\n"
    "def noted(self, view):\n"
    "    news = advance(self, view)\n"
    "    sent.extend([] if news is None else [step.step for step in news[1]])\n"
    "    return news\n"
    "columns.RowCursor.advance = noted",
    f"llmops.attach({RUN_ID!r}).wait(raise_on_failure=False)",
    f"print('once each:', sent == list(range(1, {STEPS} + 1)))",
)


@pytest.fixture
def growing(lab: Lab) -> Iterator[str]:
    """Written by a process of its own into the store that this Lab reads."""
    folder = lab.home / "runs" / RUN_ID
    writer = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.widgets.simulate", str(folder)),
            *("--steps", str(STEPS), "--pace", "20", "--run-id", RUN_ID),
        ],
        cwd=ROOT,
    )
    while not (folder / "record.json").exists():
        time.sleep(0.05)
    yield RUN_ID
    writer.kill()
    writer.wait()


@pytest.fixture
def tab(chromium: Any, lab: Lab) -> Iterator[Any]:
    """Opens pages, each in a browser profile of its own."""
    contexts = []

    def opened() -> LabPage:
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 900}))
        return LabPage(contexts[-1].new_page(), lab)

    yield opened
    for context in contexts:
        context.close()


def test_each_sees_every_step_once(growing: str, lab: Lab, tab: Any) -> None:
    lab.write("follow.ipynb", *CELLS)
    notebook_tab = tab()
    notebook = Notebook(notebook_tab.page, lab, "follow.ipynb")
    notebook.open()
    notebook.run_all()
    first, second = tab(), tab()
    for page in (first, second):
        page.open()
        page.command("llmops:open-run", runId=growing)
        page.page.wait_for_selector(f"{PANEL} canvas", timeout=60_000)
    # In the middle of it one page loses its connection, as behind a proxy that drops it.
    second.page.context.set_offline(True)
    second.page.wait_for_timeout(3000)
    second.page.context.set_offline(False)
    for page in (first, second):
        page.page.locator(PANEL).get_by_text(f"step {STEPS} of {STEPS}").wait_for(timeout=90_000)
        page.page.locator(PANEL).get_by_text("Succeeded").wait_for(timeout=30_000)
        assert page.steps_received(growing) == list(range(1, STEPS + 1))
    notebook_tab.page.get_by_text("once each: True").wait_for(timeout=60_000)
    first.shots("followers")
