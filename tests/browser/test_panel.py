"""The live panel in a real JupyterLab: growing, reloaded, twice, failed, waiting, large."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.paths import RunFolder
from tests.browser.lab import ROOT
from tests.widgets.simulate import Simulation

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG_ID = "a-rather-long-run-name-of-a-user-who-likes-words-260901-101500-a1b2"
# Relative luminance and contrast as WCAG 2.2 defines them.
CONTRAST = """element => {
  const rgb = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const back = light(rgb(getComputedStyle(element.closest('.llmops-run')).backgroundColor));
  const front = light(rgb(getComputedStyle(element).color));
  return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
}"""
OVERFLOWS = """panel => [panel, ...panel.querySelectorAll('*')]
  .filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1)
  .filter(e => getComputedStyle(e).overflowX === 'visible' && !e.closest('.uplot'))
  .map(e => e.className)"""


def source(folder: Path, call: str = "show") -> str:
    return (
        "from pathlib import Path\n"
        "from llmops_kernel.store.paths import RunFolder\n"
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.widgets.folder_run import FolderRun\n"
        f"from llmops_kernel.widgets.show import {call}\n"
        f"{call}(FolderRun(RunFolder(Path({str(folder)!r}))))"
    )


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Path]:
    """A run that a process of its own writes, 20 steps a second."""
    folder = tmp_path / "growing"
    arguments = ["--steps", "1200", "--pace", "20", "--run-id", LONG_ID]
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.widgets.simulate", str(folder), *arguments], cwd=ROOT
    )
    while not (folder / "record.json").exists():
        time.sleep(0.05)
    yield folder
    writer.kill()
    writer.wait()


def steps_shown(page: Any) -> int:
    return int(page.locator(".llmops-run").first.get_attribute("data-steps") or 0)


def wait_for_steps(page: Any, count: int, *, timeout_s: float = 60) -> None:
    page.wait_for_function(
        f"Number(document.querySelector('.llmops-run')?.dataset.steps) >= {count}",
        timeout=timeout_s * 1000,
    )


def messages_of(page: Any) -> list[float]:
    """Return a list that grows by the time of each message that comes for a widget."""
    times: list[float] = []

    def received(payload: str | bytes) -> None:
        data = payload if isinstance(payload, bytes) else payload.encode()
        if b"comm_msg" in data:
            times.append(time.monotonic())

    page.on("websocket", lambda socket: socket.on("framereceived", received))
    return times


def assert_messages_are_bundled(page: Any, times: list[float]) -> None:
    """20 steps a second are shown, by far fewer messages."""
    begin_s, first = time.monotonic(), steps_shown(page)
    page.wait_for_timeout(8000)
    span_s = time.monotonic() - begin_s
    steps = steps_shown(page) - first
    rate = len([moment for moment in times if moment >= begin_s]) / span_s
    print(f"{steps / span_s:.1f} steps/s shown, {rate:.1f} comm messages/s")
    assert steps / span_s > 10
    assert 1 < rate <= 10


def test_growing_run_in_both_themes_and_three_widths(
    notebook: Any, growing: Path, lab_page: Any, errors: list[str]
) -> None:
    messages = messages_of(lab_page)
    opened = notebook("growing.ipynb", source(growing))
    opened.run_all()
    wait_for_steps(lab_page, 20)
    before = steps_shown(lab_page)
    wait_for_steps(lab_page, before + 40)
    assert_messages_are_bundled(lab_page, messages)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1280, 1920, 700):
            lab_page.set_viewport_size({"width": width, "height": 1000})
            opened.shot(f"panel-{theme.split()[1].lower()}-{width}")
            assert opened.panel().evaluate(OVERFLOWS) == []
        for part in (".llmops-title", ".llmops-facts", ".llmops-label", ".llmops-value"):
            assert lab_page.locator(part).first.evaluate(CONTRAST) >= 4.5, (theme, part)
    assert lab_page.locator(".llmops-title").get_attribute("title") == LONG_ID
    assert lab_page.locator(".uplot canvas").count() == 2
    assert errors == []


def test_reload_and_second_notebook_show_the_same(
    notebook: Any, tmp_path: Path, lab_page: Any
) -> None:
    Simulation(RunFolder(tmp_path / "done"), steps=150).whole()
    opened = notebook("done.ipynb", source(tmp_path / "done"))
    opened.run_all()
    wait_for_steps(lab_page, 150)
    text = opened.text(".llmops-run")
    opened.shot("panel-succeeded", panel_only=True)
    opened.command("docmanager:save")
    lab_page.reload()
    wait_for_steps(lab_page, 150)
    assert opened.text(".llmops-run") == text
    second = notebook("second.ipynb", source(tmp_path / "done"))
    second.run_all()
    wait_for_steps(lab_page, 150)
    assert second.text(".llmops-run") == text
    assert "step 150 of 150" in text


def test_failed_run_shows_error_place_and_remedy(
    notebook: Any, tmp_path: Path, lab_page: Any, errors: list[str]
) -> None:
    run = Simulation(RunFolder(tmp_path / "failed"))
    run.start_up("data")
    run.processes(cold="the fork server was gone; it is being started again")
    run.fail()
    opened = notebook("failed.ipynb", source(tmp_path / "failed"))
    opened.run_all()
    lab_page.wait_for_selector(".llmops-box.llmops-error")
    box = opened.text(".llmops-box.llmops-error")
    assert "HookError" in box
    assert "menu_hooks.py:31" in box
    assert "Try: check rows whose cuisine is null" in box
    started = opened.text(".llmops-waterfall ~ .llmops-later:last-child")
    assert started.startswith("Processes: 2 warm, 1 cold (rank 1): the fork server was gone")
    assert not lab_page.locator(".llmops-charts").is_visible()
    assert not lab_page.locator(".llmops-traceback").is_visible()
    lab_page.locator("summary", has_text="Traceback").click()
    assert lab_page.locator(".llmops-traceback").is_visible()
    opened.shot("panel-failed", panel_only=True)
    assert errors == []


def test_waiting_cell_answers_stop_and_ends_with_a_saved_panel_and_table(
    notebook: Any, tmp_path: Path, lab_page: Any
) -> None:
    run = Simulation(RunFolder(tmp_path / "waiting"), steps=60)
    run.start_up()
    run.start()
    for _ in run.train(last=30):
        pass
    opened = notebook("waiting.ipynb", source(tmp_path / "waiting", "wait_in_notebook"))
    opened.run_all()
    wait_for_steps(lab_page, 30)
    # The cell is blocking the kernel; the message must get through all the same.
    lab_page.get_by_role("button", name="Stop").click()
    assert "Stop and save a checkpoint?" in opened.text(".llmops-stop")
    lab_page.locator(".llmops-danger").click()
    lab_page.wait_for_selector("text=cannot be stopped from here", timeout=10_000)
    opened.shot("panel-waiting-stop-refused", panel_only=True)
    for _ in run.train(first=31):
        pass
    run.succeed()
    # No live widget is left: the saved notebook will show the same without a kernel.
    saved = lab_page.locator(".llmops-mime .llmops-run")
    saved.get_by_text("step 60 of 60").wait_for(timeout=15_000)
    table = lab_page.locator(".jp-RenderedHTML table")
    assert "step 60 of 60" in str(table.text_content())
    assert lab_page.locator(".llmops-run").count() == 1
    opened.command("docmanager:save")
    kept = (opened.lab.work / "waiting.ipynb").read_text
    lab_page.wait_for_timeout(1000)
    assert '"image/png"' in kept()  # For all who do not have this extension.
    opened.shot("wait-final")


def test_hundred_thousand_steps_open_quickly(
    notebook: Any, tmp_path: Path, lab_page: Any, errors: list[str]
) -> None:
    run = Simulation(RunFolder(tmp_path / "large"), steps=100_000, eval_every=5000)
    run.whole()
    opened = notebook("large.ipynb", source(tmp_path / "large"))
    begin_s = time.monotonic()
    opened.run_all()
    panel = lab_page.locator(".llmops-mime .llmops-run")
    panel.get_by_text("step 100,000 of 100,000").wait_for(timeout=60_000)
    # An ended run is shown as it is saved: thinned, so that the notebook's file stays small.
    assert 1000 < steps_shown(lab_page) <= 2000
    print(f"100,000 steps on the screen after {time.monotonic() - begin_s:.1f} s")
    opened.shot("panel-100000-steps", panel_only=True)
    assert time.monotonic() - begin_s < 30
    assert errors == []


@pytest.fixture
def charts(notebook: Any, tmp_path: Path, lab_page: Any) -> Any:
    """The panel of a run that is over, on the page."""
    Simulation(RunFolder(tmp_path / "charts"), steps=150).whole()
    notebook("charts.ipynb", source(tmp_path / "charts")).run_all()
    wait_for_steps(lab_page, 150)
    return lab_page.locator(".llmops-run").first


def test_charts_are_smoothed_zoomed_and_read_by_keys(
    charts: Any, lab_page: Any, errors: list[str]
) -> None:
    assert not charts.locator(".llmops-startup").is_visible()  # Folded after the first step.
    charts.get_by_label("smoothing").fill("0.9")
    curve = charts.locator(".llmops-plot").first
    curve.get_by_text("loss, smoothed").wait_for()
    charts.get_by_label("log scale").check()
    curve.locator("canvas").wait_for()
    show_all = charts.get_by_role("button", name="Show all")
    assert show_all.is_disabled()
    curve.focus()
    lab_page.keyboard.press("+")
    assert show_all.is_enabled()
    lab_page.keyboard.press("0")
    assert show_all.is_disabled()
    at = curve.locator(".u-value").first
    lab_page.keyboard.press("ArrowRight")
    first = int(at.inner_text())
    lab_page.keyboard.press("ArrowRight")
    assert int(at.inner_text()) == first + 1
    assert errors == []


def test_charts_are_added_and_downloaded(charts: Any, lab_page: Any, errors: list[str]) -> None:
    charts.get_by_text("Charts", exact=True).click()
    charts.get_by_label("Learning rate", exact=True).check()
    assert charts.locator(".llmops-plot").count() == 3
    with lab_page.expect_download() as csv:
        charts.get_by_role("button", name="CSV").click()
    lines = Path(csv.value.path()).read_text().splitlines()
    assert lines[0].startswith("step,loss,mfu,")
    assert len(lines) == 151
    with lab_page.expect_download() as png:
        charts.get_by_role("button", name="Download Loss as PNG").click()
    assert Path(png.value.path()).read_bytes().startswith(b"\x89PNG")
    assert errors == []
