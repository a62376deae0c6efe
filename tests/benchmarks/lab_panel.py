"""The run panel in a real Lab and a real Chromium: how fast it opens and scrolls, what it keeps.

    python -m tests.benchmarks.lab_panel [--steps 100000] [--repeat 5] [--minutes 10]

First a finished run with that many steps is opened again and again, on a page that has not seen it;
`open_s` is from the command to the drawn curves with every row there. Then the panel is scrolled
for three seconds. With `--minutes` a run is followed that takes 20 steps a second, and the
page's memory is read after a forced collection. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from llmops_kernel.store.paths import RunFolder
from tests.browser.lab import CHROMIUM, FLAGS, ROOT, Lab
from tests.browser.lab_page import LabPage
from tests.widgets.simulate import Simulation

LONG, LIVE = "long-260901-101500-a1b2", "live-260901-101500-a1b2"
PACE = 20.0
SAMPLE_S = 30.0
OPEN = """async ([runId, text]) => {
  const begin = performance.now();
  void window.jupyterapp.commands.execute('llmops:open-run', { runId });
  const isDrawn = () => {
    const panel = document.querySelector('.lm-DockPanel .llmops-run');
    return panel && panel.querySelectorAll('canvas').length === 2
      && panel.textContent.includes(text) && panel.offsetParent !== null;
  };
  while (!isDrawn()) {
    if (performance.now() - begin > 60000) throw new Error('never drawn');
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
  return (performance.now() - begin) / 1000;
}"""
SCROLL = """async () => {
  let box = document.querySelector('.lm-DockPanel .llmops-run');
  while (box && !(box.scrollHeight > box.clientHeight + 50
         && /auto|scroll/.test(getComputedStyle(box).overflowY))) box = box.parentElement;
  if (!box) return null;
  const frames = [];
  const begin = performance.now();
  let last = begin;
  while (last - begin < 3000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    const range = box.scrollHeight - box.clientHeight;
    box.scrollTop = range * (0.5 - 0.5 * Math.cos((now - begin) / 400));
  }
  return { fps: 1000 * frames.length / (last - begin), worst_ms: Math.max(...frames) };
}"""


@contextmanager
def lab_and_page() -> Iterator[tuple[Lab, Page]]:
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder, sync_playwright() as driver:
        lab = Lab(Path(folder))
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            lab.wait()
            yield lab, browser.new_page(viewport={"width": 1280, "height": 900})
        finally:
            browser.close()
            lab.stop()


def folder_of(lab: Lab, run_id: str) -> RunFolder:
    return RunFolder(lab.home / "runs" / run_id)


def open_and_scroll(lab: Lab, page: Page, *, steps: int, repeat: int) -> dict[str, Any]:
    simulation = Simulation(folder_of(lab, LONG), run_id=LONG, steps=steps, eval_every=steps // 8)
    simulation.whole()
    opened: list[float] = []
    for number in range(repeat):
        tab = LabPage(page, lab)
        tab.open()
        page.wait_for_timeout(3000)
        opened.append(page.evaluate(OPEN, [LONG, f"step {steps:,} of {steps:,}"]))
        received = tab.steps_received(LONG)
        assert received == list(range(1, steps + 1)), "every step once"
        print(f"  opened {number + 1}/{repeat}: {opened[-1]:.2f} s", file=sys.stderr, flush=True)
    page.wait_for_timeout(1000)
    return {
        "steps": steps,
        "open_cold_s": round(opened[0], 3),
        "open_s": round(statistics.median(opened), 3),
        "open_all_s": [round(value, 3) for value in opened],
        "scroll": page.evaluate(SCROLL),
    }


def follow(lab: Lab, page: Page, *, minutes: float) -> dict[str, Any]:
    steps = int(minutes * 60 * PACE)
    writer = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.widgets.simulate", str(folder_of(lab, LIVE).root)),
            *("--steps", str(steps + 1000), "--pace", str(PACE), "--run-id", LIVE),
        ],
        cwd=ROOT,
    )
    try:
        while not folder_of(lab, LIVE).record.exists():
            time.sleep(0.1)
        return _watched(lab, page, seconds=minutes * 60)
    finally:
        writer.kill()
        writer.wait()


def _watched(lab: Lab, page: Page, *, seconds: float) -> dict[str, Any]:
    tab = LabPage(page, lab)
    tab.open()
    tab.command("llmops:open-run", runId=LIVE)
    page.wait_for_selector(".lm-DockPanel .llmops-run canvas", timeout=60_000)
    session = page.context.new_cdp_session(page)
    samples: list[tuple[float, float]] = []
    begin_s = time.monotonic()
    while (passed_s := time.monotonic() - begin_s) < seconds:
        page.wait_for_timeout(min(SAMPLE_S, seconds - passed_s) * 1000)
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"] / 2**20
        samples.append((time.monotonic() - begin_s, used))
        print(f"  {samples[-1][0]:5.0f} s  {used:6.1f} MiB", file=sys.stderr, flush=True)
    received = tab.steps_received(LIVE)
    slope = statistics.linear_regression(*zip(*samples[1:], strict=True)).slope
    return {
        "minutes": round(seconds / 60, 1),
        "steps_received": len(received),
        "each_step_once": received == list(range(1, len(received) + 1)),
        "heap_first_mib": round(samples[0][1], 1),
        "heap_last_mib": round(samples[-1][1], 1),
        "heap_mib_per_minute": round(slope * 60, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=0.0)
    options = parser.parse_args()
    with lab_and_page() as (lab, page):
        result = open_and_scroll(lab, page, steps=options.steps, repeat=options.repeat)
        if options.minutes:
            result["follow"] = follow(lab, page, minutes=options.minutes)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
