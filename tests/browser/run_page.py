"""A Lab with its own short home for real clusters, and what a user does with a run on its page."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage

PANEL = ".lm-DockPanel .llmops-run:visible"
_STEP = """() => {
  const panel = [...document.querySelectorAll('.lm-DockPanel .llmops-run')]
    .find(element => element.offsetParent !== null);
  const found = panel?.textContent.match(/step ([0-9,]+)/);
  return found ? Number(found[1].replaceAll(',', '')) : 0;
}"""


@contextmanager
def real_lab(*, base_url: str = "/") -> Iterator[Lab]:
    """Its clusters are stopped with it. Ray's socket paths need a short folder."""
    folder = Path(tempfile.mkdtemp(prefix="llmops-l-"))
    lab = Lab(folder, base_url=base_url)
    try:
        yield lab
    finally:
        lab.stop()
        _stop_clusters(lab.home)
        shutil.rmtree(folder, ignore_errors=True)


def _stop_clusters(home: Path) -> None:
    from llmops_kernel.providers.local.provider import LocalProvider

    provider = LocalProvider(home)
    for info in provider.list():
        provider.down(info.name)


class RunPage:
    """One tab whose runs are real."""

    def __init__(self, tab: LabPage) -> None:
        self.tab, self.page = tab, tab.page

    def button(self, name: str, **more: Any) -> Any:
        return self.page.get_by_role("button", name=name, **more)

    def run_ids(self) -> set[str]:
        runs = self.tab.lab.home / "runs"
        found = runs.iterdir() if runs.exists() else ()
        return {path.name for path in found if (path / "record.json").exists()}

    def new_run(self, before: set[str]) -> str:
        for _ in range(300):
            new = self.run_ids() - before
            if new:
                return new.pop()
            self.page.wait_for_timeout(200)
        raise AssertionError("no run was made")

    def file(self, name: str) -> Any:
        return self.page.locator(".jp-DirListing-item").filter(has_text=name)

    def submit(self, name: str, fill: dict[str, str], *, expect: str) -> str:
        """From the context menu of the file; returns the run's id."""
        before = self.run_ids()
        self.tab.command("filebrowser:activate")
        self.file(name).click(button="right")
        self.tab.menu_item("Submit to Cluster…").click()
        dialog = self.page.locator(".jp-Dialog")
        for label, text in fill.items():
            dialog.get_by_label(label).fill(text)
        dialog.get_by_text(expect).wait_for(timeout=20_000)
        dialog.get_by_role("button", name="Submit").click()
        run_id = self.new_run(before)
        self.shown(run_id)
        return run_id

    def shown(self, run_id: str) -> None:
        self.page.locator(PANEL).filter(has_text=run_id).first.wait_for(timeout=60_000)

    def step(self) -> int:
        return int(self.page.evaluate(_STEP))

    def wait_for_step(self, step: int, *, timeout_s: float = 150) -> int:
        self.page.wait_for_function(
            f"least => ({_STEP})() >= least", arg=step, timeout=1000 * timeout_s
        )
        return self.step()

    def figure(self, label: str) -> str:
        return str(
            self.page.locator(f"{PANEL} .llmops-figure")
            .filter(has=self.page.get_by_text(label, exact=True))
            .locator(".llmops-value")
            .first.text_content()
        )

    def wait_for_state(self, state: str) -> None:
        badge = self.page.locator(f"{PANEL} .llmops-badge").filter(has_text=state)
        badge.first.wait_for(timeout=150_000)

    def press_stop(self) -> None:
        """The tab has one button for it, in its toolbar, which asks for confirmation."""
        tab = self.page.locator(".llmops-runpanel:visible")
        tab.get_by_role("button", name="Stop").click()
        self.page.locator(".jp-Dialog").get_by_role("button", name="Stop").click()

    def compare(self, *run_ids: str, changed: str) -> None:
        """Select the runs in the side bar and wait until `changed` is among the differences."""
        self.tab.command("llmops:show-runs")
        for run_id in run_ids:
            self.page.locator(f".llmops-runs-row[data-run-id='{run_id}'] input").check()
        self.button(f"Compare {len(run_ids)} runs").click()
        view = self.page.locator(".llmops-compare:visible")
        view.locator("canvas").first.wait_for(timeout=30_000)
        view.get_by_text(changed).first.wait_for(timeout=30_000)
