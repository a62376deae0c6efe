"""A saved notebook shows its run in Lab with neither kernel nor widget state."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from llmops_kernel.store.paths import RunFolder
from llmops_kernel.views.saved_run import MIME_TYPE, saved_run
from llmops_kernel.views.static_run import render_png
from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage
from tests.widgets.folder_run import FolderRun
from tests.widgets.simulate import Simulation

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def saved(lab: Lab, tmp_path: Path) -> str:
    """A notebook as papermill leaves it: untrusted, a picture and our own type."""
    simulation = Simulation(RunFolder(tmp_path / "run"), steps=300)
    simulation.whole()
    run = FolderRun(simulation.folder)
    follower = run.follower()
    follower.poll()
    data = {
        MIME_TYPE: saved_run(follower.view, run.record, now_s=time.time()),
        "image/png": base64.b64encode(render_png(follower.view, title="a run")).decode(),
        "text/plain": "a run",
    }
    cell = nbformat.v4.new_code_cell("run.wait()", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, lab.work / "saved.ipynb")
    return "saved.ipynb"


def test_a_saved_run_is_drawn_without_a_kernel(saved: str, lab: Lab, lab_page: Any) -> None:
    tab = LabPage(lab_page, lab)
    tab.open(f"/tree/{saved}")
    panel = lab_page.locator(".llmops-mime .llmops-run")
    panel.wait_for(timeout=60_000)
    assert panel.locator("canvas").count() == 2
    assert "step 300 of 300" in panel.text_content()
    assert panel.get_by_role("button", name="Stop").count() == 0
    tab.shots("saved-notebook")
