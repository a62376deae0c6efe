"""Clusters in the side bar: pages of their dashboards, layouts, drags, the form, the keyboard."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.providers.local.record import ClusterFolder, cluster_folder
from llmops_kernel.server.wire.clusters import ClusterRow
from llmops_kernel.store.store import RunStore
from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage
from tests.browser.native.accessible import assert_accessible
from tests.browser.simulated import SimulatedClusters, row
from tests.providers.conftest import head_record
from tests.server.runs import make_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "a-very-long-name-of-a-cluster-of-someone"
ROW = ".llmops-clusters-row[data-cluster='{}']"
OPEN = f"{ROW} .llmops-clusters-open"
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .map(cell => cell.model.sharedModel.getSource())"""
KERNEL_IDLE = """() => window.jupyterapp?.shell.currentWidget
  ?.sessionContext?.session?.kernel?.status === 'idle'"""
FOCUSED = """() => document.activeElement.getAttribute('aria-label')
  ?? (document.activeElement.id || document.activeElement.textContent)"""


class Clusters:
    """The side bar of one page."""

    def __init__(self, page: Any, lab: Lab) -> None:
        self.tab, self.page = LabPage(page, lab), page

    def simulate(self, *rows: ClusterRow) -> SimulatedClusters:
        return SimulatedClusters(self.page, *rows)

    def open(self, path: str = "", *, name: str = "lab") -> None:
        self.tab.open(path)
        self.tab.command("llmops:show-clusters")
        self.page.locator(OPEN.format(name)).wait_for()

    def tabs(self) -> list[str]:
        labels = self.page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel")
        return [text for text in labels.all_text_contents() if text]

    def pane(self, label: str) -> dict[str, float]:
        """Where the pane of a tab lies."""
        tab = self.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text=label)
        return self.box(str(tab.get_attribute("data-id")))

    def box(self, widget_id: str) -> dict[str, float]:
        box: dict[str, float] = self.page.locator(f"[id='{widget_id}']").bounding_box()
        return box

    def open_page(self, page: str) -> None:
        pages = self.page.get_by_role("list", name="Pages of the Ray Dashboard of lab")
        pages.get_by_role("button", name=page).click()
        self.page.frame_locator(f"iframe[title^='{page} page']").get_by_text(
            f"#/{page.lower()}"
        ).wait_for()

    def drag_to(self, x: float, y: float) -> None:
        box = self.page.locator(OPEN.format("lab")).bounding_box()
        mouse = self.page.mouse
        mouse.move(box["x"] + 30, box["y"] + 20)
        mouse.down()
        mouse.move(box["x"] + 60, box["y"] + 40, steps=4)
        mouse.move(x, y, steps=8)
        mouse.up()

    def see(self, name: str, *, is_open: bool) -> None:
        expanded = "true" if is_open else "false"
        self.page.locator(f"{OPEN.format(name)}[aria-expanded='{expanded}']").wait_for()

    def press(self, *keys: str) -> str:
        """Returns what has the focus then."""
        for key in keys:
            self.page.keyboard.press(key)
        return str(self.page.evaluate(FOCUSED))

    def tab_to(self, name: str) -> None:
        passed = [str(self.page.evaluate(FOCUSED))]
        while passed[-1] != name:
            passed.append(self.press("Tab"))
            assert len(passed) < 20, passed


@pytest.fixture
def clusters(lab: Lab, lab_page: Any) -> Clusters:
    return Clusters(lab_page, lab)


def test_pages_in_tabs_of_their_own(clusters: Clusters) -> None:
    simulated = clusters.simulate(row("lab"))
    clusters.open()
    page = clusters.page
    page.locator(OPEN.format("lab")).click()
    clusters.open_page("Jobs")
    clusters.open_page("Logs")
    clusters.open_page("Jobs")
    wanted = ["Ray Jobs: lab", "Ray Logs: lab"]
    assert clusters.tabs()[-2:] == wanted
    clusters.tab.shots("clusters-pages")
    assert_accessible(page, ".llmops-dashboard", "#llmops-clusters")
    page.wait_for_timeout(1500)  # Lab saves its layout after a pause.
    clusters.tab.reload()
    page.locator("iframe[title^='Jobs page']").wait_for()
    assert [label for label in clusters.tabs() if label in wanted] == wanted
    simulated.report(row("lab", "stopped"))
    page.locator(".llmops-dashboard.llmops-mod-gone").first.wait_for(state="attached")
    page.get_by_text("The page below may be out of date.").first.wait_for()


def test_the_training_layout(clusters: Clusters, lab: Lab) -> None:
    run_id = f"layout-{time.monotonic_ns()}"
    make_run(RunStore(lab.home), run_id, steps=3, cluster="lab")
    clusters.simulate(row("lab"), row(LONG))
    clusters.open()
    page = clusters.page
    page.wait_for_function(
        "!window.jupyterapp.commands.caption('llmops:open-layout').startsWith('There is')"
    )
    page.get_by_role("menuitem", name="View", exact=True).click()
    page.get_by_role("menuitem", name="Open Training Layout").click()
    page.locator("iframe[title^='Cluster page']").wait_for()
    # Its tab has the run's id as label before it knows the run's name.
    left = clusters.box(f"llmops-run-{run_id}")
    jobs, nodes = (clusters.pane(label) for label in ("Ray Jobs: lab", "Ray Cluster: lab"))
    assert jobs["x"] >= left["x"] + left["width"]
    assert nodes["x"] == jobs["x"]
    assert nodes["y"] >= jobs["y"] + jobs["height"]
    clusters.tab.shots("clusters-layout")
    before = clusters.tabs()
    clusters.tab.command("llmops:open-layout")
    page.wait_for_timeout(1000)
    assert clusters.tabs() == before


def test_a_drag_drops_a_cell_that_attaches(clusters: Clusters, lab: Lab) -> None:
    lab.write("drag.ipynb", "x = 1", "y = 2")
    clusters.simulate(row("lab"))
    clusters.open("/tree/drag.ipynb")
    page = clusters.page
    page.wait_for_function(KERNEL_IDLE, timeout=60_000)
    editor = page.locator(".jp-Notebook .cm-content").first.bounding_box()
    clusters.drag_to(editor["x"] + 20, editor["y"] + 8)
    page.wait_for_function(f"() => ({CELLS})().length === 3")
    first, *rest = page.evaluate(CELLS)
    assert first.endswith('cluster = llmops.cluster("lab")\ncluster')
    assert rest == ["x = 1", "y = 2"]
    clusters.see("lab", is_open=False)
    # Over the row itself nothing is dropped, and the row does not open.
    box = page.locator(OPEN.format("lab")).bounding_box()
    clusters.drag_to(box["x"] + 40, box["y"] + 30)
    page.wait_for_timeout(300)
    clusters.see("lab", is_open=False)
    page.locator(OPEN.format("lab")).click()
    clusters.see("lab", is_open=True)
    assert len(page.evaluate(CELLS)) == 3


def test_mistakes_are_reported_at_their_fields(clusters: Clusters) -> None:
    clusters.simulate(row("lab"))
    clusters.open()
    page = clusters.page
    page.get_by_role("button", name="New Ray Cluster").click()  # The launcher's card.
    name = page.get_by_label("name", exact=True)
    name.fill("Bad Name")
    page.get_by_label("num_cpus", exact=True).fill("-4")
    for field in ("name", "num_cpus"):
        place = page.locator(f".llmops-form-field[data-field='{field}']")
        place.locator(".llmops-form-wrong").wait_for()
        assert place.locator("input").get_attribute("aria-invalid") == "true"
    start = page.get_by_role("button", name="Start", exact=True)
    assert start.is_disabled()
    clusters.tab.shots("clusters-form-mistakes")
    assert_accessible(page, ".llmops-form")
    name.fill("good-name")
    page.get_by_label("num_cpus", exact=True).fill("")
    page.locator(".llmops-form-wrong").first.wait_for(state="detached")
    page.locator(".llmops-form-buttons button:enabled", has_text="Start").wait_for()
    # The editor takes Tabs for itself, but it is no trap.
    page.locator(".llmops-form-yaml .cm-content").focus()
    assert clusters.press("Escape", "Tab") == "Save as template file…"
    assert clusters.press("Tab") == "Start"


def stopped(home: Path, name: str) -> ClusterFolder:
    """A cluster that was suspended, as its record tells."""
    folder = cluster_folder(home, name)
    folder.create()
    now = time.time()
    times = {"started_s": now - 60, "stopping_s": now - 10, "stopped_s": now - 5}
    folder.write(head_record(home / "ray", name=name, template={"name": name}, **times))
    return folder


def test_by_the_keyboard_alone(clusters: Clusters, lab: Lab) -> None:
    folder = stopped(lab.home, "gone")
    try:
        clusters.open(name="gone")
        _delete_by_keyboard(clusters, folder)
    finally:
        shutil.rmtree(folder.root, ignore_errors=True)


def _delete_by_keyboard(clusters: Clusters, folder: ClusterFolder) -> None:
    page = clusters.page
    page.locator(".jp-LauncherCard").first.wait_for()
    page.wait_for_timeout(1500)  # The launcher takes the focus when it has been drawn.
    clusters.tab.command("llmops:show-clusters")
    assert clusters.press("Tab") == "New cluster…"
    assert "gone" in clusters.press("Tab")
    clusters.press("Enter")
    clusters.see("gone", is_open=True)
    clusters.press("Space")
    clusters.see("gone", is_open=False)
    dialog = page.get_by_role("dialog")
    for answer in ("Escape", "Enter"):
        clusters.tab_to("Delete…")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        clusters.press("Enter")
        # Seen before its body is drawn, and only then it takes the focus.
        dialog.locator(":focus").wait_for()
        clusters.tab.shot(f"clusters-delete-{answer.lower()}")
        if answer == "Enter":
            # What has the focus at first deletes nothing.
            assert page.evaluate(FOCUSED) == "Cancel"
            clusters.press("Tab")
        clusters.press(answer)
        dialog.wait_for(state="detached")
        if answer == "Escape":
            assert page.evaluate(FOCUSED) == "Delete…"
            assert folder.root.exists()
    page.locator(ROW.format("gone")).wait_for(state="detached")
    assert not folder.root.exists()


def test_pictures_of_all_states(clusters: Clusters) -> None:
    dead = {
        "message": "Its head is gone: killed for want of memory.",
        "remedy": "resume or delete it",
        "log_tail": "\n".join(
            f"line {i} of a log that is wider than the side bar" for i in range(20)
        ),
    }
    now = time.time()
    busy = {"operation_id": "o", "doing": "suspend", "progress": "stopping 3 processes"}
    stale = {"stale": "no answer in 5 s", "remedy": "wait", "checked_s": now - 95}
    idle = {"cpus_used": 0, "jobs_running": 0}
    clusters.simulate(
        *(row("lab"), row(LONG), row("dead", "dead", info=dead), row("stopping", "stopping")),
        row("starting", "starting", info={"message": "waiting for the dashboard"}),
        row("stopped", "stopped", info={"remedy": "llmops up stopped"}),
        *(row("busy").model_copy(update=busy), row("stale").model_copy(update=stale)),
        row("idle", info=idle, idle_since_s=now - 1234),
        *(row(f"more-{number}") for number in range(3)),
    )
    clusters.open()
    for name in (LONG, "dead"):
        clusters.page.locator(OPEN.format(name)).click()
    names = clusters.page.locator(".llmops-clusters-name")
    assert names.count() == 12
    assert clusters.page.locator(".llmops-clusters-stale", has_text="As of").count() == 1
    clusters.tab.shots("clusters-states")
    assert_accessible(clusters.page, "#llmops-clusters")
