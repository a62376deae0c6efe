"""10,000 samples in one evaluation: their place on disk, what is sent, turning pages, scrolling.

    python -m tests.benchmarks.runs.samples --samples 10000 [--evaluations 3]

The panel's own module in a real Chromium; its requests are answered from the run's view, as the
server and the kernel do. Times are taken in the page, up to the frame after the new samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.snapshot import SAMPLE_PAGE, sample_table, snapshot
from llmops_kernel.widgets.run_panel import RunPanel
from tests.browser.lab import CHROMIUM, FLAGS
from tests.server.runs import make_run, worker

RUN_ID = "samples-1"
_SETUP = """async ([esm, css, state]) => {
  const style = document.createElement('style');
  style.textContent = css;
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([esm], { type: 'text/javascript' }));
  const heard = new Map();
  const model = {
    get: name => ({ state, can_page: true, notice: {} })[name] ?? null,
    on: (name, call) => heard.set(name, call),
    off: () => undefined,
    send: async content => {
      if (content.kind !== 'samples') return;
      const page = JSON.parse(await window.pageOfSamples(content.first));
      heard.get('msg:custom')({ kind: 'samples', page });
    },
  };
  const panel = (await import(url)).default();
  panel.initialize({ model });
  panel.render({ model, el: document.body });
}"""
_TURN = """async name => {
  const text = () => document.querySelector('.llmops-pager').textContent;
  const before = text();
  const begin = performance.now();
  const all = [...document.querySelectorAll('.llmops-pager button')];
  all.find(one => one.textContent === name).click();
  while (text() === before) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""
_SCROLL = """async () => {
  const frames = [];
  const begin = performance.now();
  let last = begin;
  while (last - begin < 3000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    const range = document.documentElement.scrollHeight - innerHeight;
    scrollTo(0, range * (0.5 - 0.5 * Math.cos((now - begin) / 400)));
  }
  return [1000 * frames.length / (last - begin), Math.max(...frames)];
}"""


def written(store: RunStore, *, samples: int, evaluations: int) -> TrainingView:
    folder = make_run(store, RUN_ID, steps=evaluations, ended=None)
    journal = worker(store, RUN_ID)
    for step in range(1, evaluations + 1):
        journal.emit(
            EvalEvent(
                step=step,
                metrics={"eval_loss": 1.0 / step},
                answers_s=12.0,
                samples=tuple(_sample(number, step) for number in range(1, samples + 1)),
            )
        )
    journal.close()
    found = _found(folder, f"reference of row {samples},".encode())
    places = ", ".join(f"{name} {count} times, {size:.1f} MiB" for name, count, size in found)
    print(f"the last sample of {evaluations} evaluations is in: {places}")
    begun_s = time.perf_counter()
    view = store.view(RUN_ID)
    print(f"journal read in {(time.perf_counter() - begun_s) * 1e3:.0f} ms")
    return view


def _found(folder: Path, marker: bytes) -> list[tuple[str, int, float]]:
    """Files of the run that have it: name, how often, MiB."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    counts = [(path, path.read_bytes().count(marker)) for path in files]
    return [(one.name, count, one.stat().st_size / 2**20) for one, count in counts if count]


def _sample(number: int, step: int) -> dict[str, str]:
    return {
        "row": f"{number}",
        "prompt": f"What is dish number {number} of this menu made of? " * 4,
        "prediction": f"answer {number} at step {step}: soup with vegetables " * 4,
        "reference": f"reference of row {number}, thai",
        "exact_match": "0",
    }


def measure(page: Page, view: TrainingView, record: RunRecord) -> None:
    took: list[float] = []
    state: dict[str, Any] = {}
    for _ in range(5):
        begun_s = time.perf_counter()
        state = snapshot(view, record, now_s=time.time()).model_dump(mode="json")
        took.append((time.perf_counter() - begun_s) * 1e3)
    size = len(json.dumps(state)) / 1024
    print(f"state of the panel: {statistics.median(took):.1f} ms, {size:.0f} KiB are sent")
    answered: list[float] = []

    def page_of(first: int) -> str:
        begun_s = time.perf_counter()
        text = sample_table(view, first=first, most=SAMPLE_PAGE).model_dump_json()
        answered.append((time.perf_counter() - begun_s) * 1e3)
        return text

    page.expose_function("pageOfSamples", page_of)
    page.goto("about:blank")
    page.evaluate(_SETUP, [RunPanel._esm, RunPanel._css, state])
    page.locator(".llmops-sample").nth(SAMPLE_PAGE - 1).wait_for()
    turned = [page.evaluate(_TURN, "Next") for _ in range(30)]
    print(
        f"next page, to the drawn frame: median {statistics.median(turned):.0f} ms"
        f" ({min(turned):.0f} - {max(turned):.0f}), of it the page's making"
        f" {statistics.median(answered):.1f} ms; {len(turned)} pages of {SAMPLE_PAGE}"
    )
    rate, longest = page.evaluate(_SCROLL)
    print(f"scrolled for 3 s: {rate:.1f} frames a second, longest {longest:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--evaluations", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder, sync_playwright() as driver:
        store = RunStore(Path(folder))
        view = written(store, samples=options.samples, evaluations=options.evaluations)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        measure(page, view, store.record(RUN_ID))
        browser.close()


if __name__ == "__main__":
    main()
