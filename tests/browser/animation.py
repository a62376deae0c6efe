"""README's animated picture, made from a real session: JupyterLab, Ray, a training of SmolLM2-135M.

    python -m tests.browser.animation [--to .github/loop.webp]

Submits the shipped config, watches its loss, submits it again with one number changed, and compares
the two. Needs Chromium and the built Lab extension (`make labextension`).
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.browser.lab import CHROMIUM, FLAGS, ROOT, Lab
from tests.browser.lab_page import LabPage, opened
from tests.browser.run_page import PANEL, RunPage, real_lab

WIDTH, HEIGHT = 1200, 750
FRAME_MS, SHORTEST_MS, LOOK_MS, LAST_MS = 250, 150, 1200, 3000
OLD, NEW = "learning_rate: 2.0e-3", "learning_rate: 5.0e-4"
STEPS = 20
CHAPTER_MS = 6000
"""A training is shown in this time, however long it took."""
CONFIG = "lora.train.yaml"


class Film:
    """Screenshots with the time that each is shown."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._frames: list[tuple[bytes, int]] = []

    def take(self, shown_ms: int = FRAME_MS) -> None:
        picture = self._page.screenshot()
        if self._frames and self._frames[-1][0] == picture:
            self._frames[-1] = (picture, self._frames[-1][1] + shown_ms)
        else:
            self._frames.append((picture, shown_ms))

    def until(self, is_over: Any, *, timeout_s: float = 300) -> None:
        """Take pictures until then, and show what took longer in the time of a chapter."""
        first = len(self._frames)
        self._take_until(is_over, timeout_s)
        frames = self._frames[first:]
        if sum(shown for _, shown in frames) > CHAPTER_MS:
            kept = frames[:: max(1, len(frames) * SHORTEST_MS // CHAPTER_MS)]
            frames = [(picture, CHAPTER_MS // len(kept)) for picture, _ in kept]
        self._frames[first:] = frames

    def _take_until(self, is_over: Any, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while not is_over():
            if time.monotonic() > until_s:
                raise TimeoutError("what the picture waits for did not come")
            begin_s = time.monotonic()
            self.take()
            left_ms = FRAME_MS - 1000 * (time.monotonic() - begin_s)
            self._page.wait_for_timeout(max(1, left_ms))

    def write(self, path: Path) -> None:
        from PIL import Image

        pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data, _ in self._frames]
        first, *others = pictures
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=[shown for _, shown in self._frames],
            loop=0,
            quality=70,
            method=6,
        )
        seconds = sum(shown for _, shown in self._frames) / 1000
        size_kib = path.stat().st_size // 1024
        print(f"{path}: {len(pictures)} pictures, {seconds:.1f} s, {size_kib} KiB")


class Session(RunPage):
    """What is shown, one method a chapter."""

    def __init__(self, tab: LabPage) -> None:
        super().__init__(tab)
        self.film = Film(self.page)

    def open_config(self) -> None:
        self.tab.command("llmops:show-runs")
        self.tab.command("docmanager:open", path=CONFIG)
        self.page.locator(".jp-FileEditor .cm-content").wait_for()
        self.page.wait_for_timeout(1500)
        self.film.take(LOOK_MS)

    def first_run(self) -> str:
        before = self.run_ids()
        toolbar = self.page.locator(".jp-FileEditor").locator("xpath=ancestor::*[@id]").last
        button = toolbar.get_by_role("button", name="Submit").first
        button.hover()
        self.film.take(LOOK_MS)
        button.click()
        return self._watched(before)

    def second_run(self) -> str:
        before = self.run_ids()
        self.tab.command("llmops:resubmit-run")
        dialog = self.page.locator(".jp-Dialog")
        line = dialog.locator(".cm-line").filter(has_text=OLD).first
        dialog.locator(".cm-content").click()
        while not line.count():
            self.page.keyboard.press("PageDown")
            self.page.wait_for_timeout(100)
        line.click()
        self.film.take(LOOK_MS)
        self._replace_in(line)
        self.film.take(LOOK_MS)
        dialog.get_by_role("button", name="Submit").click()
        return self._watched(before)

    def _replace_in(self, line: Any) -> None:
        self.page.keyboard.press("Home")
        written = line.text_content()
        begin = written.index(OLD) + len("learning_rate: ")
        spaces = len(written) - len(written.lstrip())
        for _ in range(begin - spaces):
            self.page.keyboard.press("ArrowRight")
        for _ in range(len("2.0e-3")):
            self.page.keyboard.press("Delete")
        self.film.take()
        self.page.keyboard.type(NEW.split()[-1])
        self.page.wait_for_timeout(500)

    def _watched(self, before: set[str]) -> str:
        run_id = self.new_run(before)
        self.shown(run_id)
        badge = self.page.locator(f"{PANEL} .llmops-badge").filter(has_text="Succeeded")
        self.film.until(badge.count)
        self.page.wait_for_timeout(500)
        self.film.take(LOOK_MS)
        return run_id

    def comparison(self, first: str, second: str) -> None:
        self.tab.command("llmops:show-runs")
        for run_id in (first, second):
            self.page.locator(f".llmops-runs-row[data-run-id='{run_id}'] input").check()
            self.film.take(2 * FRAME_MS)
        self.button("Compare 2 runs").click()
        self.page.locator(".llmops-compare:visible canvas").first.wait_for(timeout=30_000)
        self.page.wait_for_timeout(1000)
        self.film.take(LAST_MS)


def prepare(lab: Lab) -> None:
    """Copy the shipped config with fewer steps, and bring a cluster up."""
    shutil.copytree(ROOT / "notebooks", lab.work, dirs_exist_ok=True)
    config = lab.work / CONFIG
    text = config.read_text()
    changes = {
        "max_steps: 120": f"max_steps: {STEPS}",
        "generate: true": "generate: false",
        "at_start: true": "at_start: false",
        OLD: OLD,
    }
    for old, new in changes.items():
        if old not in text:
            raise SystemExit(f"{CONFIG} no longer has `{old}`: change {Path(__file__).name}")
        text = text.replace(old, new)
    config.write_text(text)
    environment = {**os.environ, "LLMOPS_HOME": str(lab.home), "PYTHONPATH": str(ROOT)}
    llmops = [str(Path(sys.executable).with_name("llmops"))]
    subprocess.run([*llmops, "up", "local"], cwd=lab.work, env=environment, check=True)
    # Converts the model, which is part of no later run.
    line = [*llmops, "submit", CONFIG, "training.max_steps=1", "--follow"]
    subprocess.run(line, cwd=lab.work, env=environment, check=True)
    subprocess.run([*llmops, "rm", "last", "--yes"], cwd=lab.work, env=environment, check=True)


def play(session: Session, path: Path) -> None:
    session.open_config()
    first = session.first_run()
    session.comparison(first, session.second_run())
    session.film.write(path)


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=ROOT / ".github" / "loop.webp")
    arguments = parser.parse_args()
    with real_lab() as lab, sync_playwright() as playwright:
        lab.wait()
        prepare(lab)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with opened(browser, lab, "animation", width=WIDTH, height=HEIGHT) as tab:
            try:
                play(Session(tab), arguments.to)
            except Exception:
                tab.shot("animation-failed")
                raise
        browser.close()


if __name__ == "__main__":
    main()
