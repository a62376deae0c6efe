"""README's animated picture, from a real session: JupyterLab, Ray, two trainings.

Submits a small config, watches its loss, submits it again with one number changed, and compares
the two. Needs Chromium and the built Lab extension (`make labextension`). A larger model, such as
SmolLM2-135M-Instruct, needs a machine that does nothing else: its steps are seconds on two cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.browser.film.reel import FRAME_MS, Reel
from tests.browser.lab import CHROMIUM, FLAGS, ROOT, Lab
from tests.browser.lab_page import LabPage, opened
from tests.browser.run_page import PANEL, RunPage, real_lab

WIDTH, HEIGHT = 1100, 690
QUALITY = 60
LOOK_MS, LAST_MS = 1000, 3500
RUN_MS = (5000, 4000)
"""How long each run is shown, however long it took."""
TIMEOUT_S = 400
CONFIG = "menu.train.yaml"
FIELD, OLD, NEW = "learning_rate: ", "0.0005", "0.005"
TEXT = f"""\
# Tags the dishes of menus. Every number can be changed here, or for one run only.
name: menu-tags
model: {{model}}

data:
  train: data/menu-train.jsonl
  eval: data/menu-eval.jsonl
  max_eval_rows: 32
  max_length: 256

hooks: menu_hooks.py             # turns a row of the data into a chat

method: full                     # trains all weights; or lora, qlora

parallelism:
  strategy: ddp                  # or fsdp, zero1, zero2, zero3
  num_workers: 1

optimizer:
  {FIELD}{OLD}          # of the first steps

training:
  micro_batch_size: 8
  global_batch_size: 8
  max_steps: {{steps}}

evaluation:
  every_steps: {{every}}
"""
# Screenshots have no mouse pointer.
_POINTER = """() => {
  const pointer = document.createElement('div');
  pointer.style.cssText = 'position:fixed;left:0;top:0;z-index:99999;pointer-events:none';
  pointer.innerHTML = '<svg width="22" height="22" viewBox="0 0 22 22"><path fill="#111" '
    + 'stroke="#fff" stroke-width="1.5" d="M2 1v17l4.5-4 3 7 3-1.300-3-6.700h6z"/></svg>';
  document.body.append(pointer);
  document.addEventListener('mousemove', event => {
    pointer.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`;
  }, true);
}"""


class Session(RunPage):
    """What is shown, one method a chapter."""

    def __init__(self, tab: LabPage) -> None:
        super().__init__(tab)
        self.reel = Reel(self.page.screenshot, lambda s: self.page.wait_for_timeout(1000 * s))
        self.page.evaluate(_POINTER)

    def open_config(self) -> None:
        self.reel.caption("A training config: one YAML file")
        self.tab.command("llmops:show-runs")
        self.tab.command("docmanager:open", path=CONFIG)
        self.page.locator(".jp-FileEditor .cm-content").wait_for()
        self.page.wait_for_timeout(2500)
        self.reel.take(2 * LOOK_MS)

    def first_run(self) -> str:
        toolbar = self.page.locator(".jp-FileEditor").locator("xpath=ancestor::*[@id]").last
        self.reel.caption("Submit it")
        before = self.run_ids()
        self.click(toolbar.get_by_role("button", name="Submit").first)
        return self._watch(before, "Watch the loss", RUN_MS[0])

    def second_run(self) -> str:
        before = self.run_ids()
        self.reel.caption("Change one number, submit again")
        self.click(self.page.get_by_role("button", name="Re-submit…").first)
        dialog = self.page.locator(".jp-Dialog")
        self._change(dialog)
        self.click(dialog.get_by_role("button", name="Submit"))
        return self._watch(before, "The second run", RUN_MS[1])

    def _change(self, dialog: Any) -> None:
        """Only lines in view are in the page: the editor is scrolled to the field."""
        dialog.locator(".cm-content").click()
        self.page.keyboard.press("Control+Home")
        line = dialog.locator(".cm-line").filter(has_text=FIELD + OLD)
        for _ in range(20):
            if line.count():
                break
            self.page.keyboard.press("PageDown")
            self.page.wait_for_timeout(100)
        line.first.click()
        self.page.keyboard.press("Home")
        written = str(line.first.text_content()).lstrip()
        for _ in range(written.index(OLD)):
            self.page.keyboard.press("ArrowRight")
        for _ in OLD:
            self.page.keyboard.press("Shift+ArrowRight")
        self.reel.take(LOOK_MS // 2)
        for letter in NEW:
            self.page.keyboard.type(letter)
            self.reel.take(FRAME_MS // 2)
        self.page.wait_for_timeout(1500)  # The dialog checks what was typed.
        self.reel.take(LOOK_MS)

    def comparison(self, *run_ids: str) -> None:
        self.reel.caption("Compare the two")
        self.tab.command("llmops:show-runs")
        for run_id in run_ids:
            self.page.locator(f".llmops-runs-row[data-run-id='{run_id}'] input").check()
            self.reel.take(2 * FRAME_MS)
        self.click(self.button(f"Compare {len(run_ids)} runs"))
        self.page.locator(".llmops-compare:visible canvas").first.wait_for(timeout=30_000)
        self.page.wait_for_timeout(1500)
        self.reel.take(LAST_MS)

    def click(self, target: Any) -> None:
        target.hover()
        self.reel.take(LOOK_MS // 2)
        target.click()

    def _watch(self, before: set[str], caption: str, shown_ms: int) -> str:
        run_id = self.new_run(before)
        self.shown(run_id)
        self.reel.caption(caption)
        panel = self.page.locator(PANEL).filter(has_text=run_id)
        state = panel.locator(".llmops-badge[data-state]").first
        ends = ("SUCCEEDED", "FAILED", "STOPPED")
        self.reel.until(
            lambda: state.get_attribute("data-state") in ends,
            shown_ms=shown_ms,
            timeout_s=TIMEOUT_S,
        )
        self.wait_for_state("Succeeded")
        self.page.wait_for_timeout(800)
        self.reel.take(LOOK_MS)
        return run_id


def prepare(lab: Lab, *, model: str, steps: int) -> None:
    """Write the config beside the shipped data, bring a cluster up, and convert the model."""
    shutil.copytree(ROOT / "notebooks", lab.work, dirs_exist_ok=True)
    text = TEXT.format(model=model, steps=steps, every=max(1, steps // 4))
    (lab.work / CONFIG).write_text(text)
    environment = {**os.environ, "LLMOPS_HOME": str(lab.home), "PYTHONPATH": str(ROOT)}
    for line in (
        ["up", "local"],
        ["submit", CONFIG, "training.max_steps=1", "evaluation.every_steps=1", "--follow"],
        ["rm", "last", "--yes"],
    ):
        llmops = [str(Path(sys.executable).with_name("llmops")), *line]
        subprocess.run(llmops, cwd=lab.work, env=environment, check=True, stdout=subprocess.DEVNULL)


def play(session: Session) -> None:
    session.open_config()
    first = session.first_run()
    session.comparison(first, session.second_run())


def main() -> None:
    options = _options()
    from playwright.sync_api import sync_playwright

    with real_lab() as lab, sync_playwright() as playwright:
        lab.wait()
        prepare(lab, model=options.model, steps=options.steps)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with opened(browser, lab, "film", width=WIDTH, height=HEIGHT) as tab:
            session = Session(tab)
            try:
                play(session)
            finally:
                if options.frames:
                    session.reel.write_frames(options.frames)
            session.reel.write(options.to, quality=options.quality)
            print(session.reel.summary(options.to))
        browser.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.film",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", type=Path, default=ROOT / ".github" / "loop.webp")
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--steps", type=int, default=120, help="of each of the two trainings")
    parser.add_argument("--quality", type=int, default=QUALITY, help="of the pictures, 0 to 100")
    parser.add_argument("--frames", type=Path, help="write each frame as PNG into this folder too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
