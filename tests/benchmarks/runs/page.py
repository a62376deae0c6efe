"""10,000 runs, 100 of them live, in a real Lab and a real Chromium: table, side bar, memory.

    python -m tests.benchmarks.runs.page --store FOLDER --rounds 10 [--minutes 30]

Times are taken in the page, from the command, click or key to the frame after the new lines are
there. `--store` is a folder as `tests.benchmarks.runs.table` makes it; it is made if it is empty.
With `--minutes` the table and the side bar stay open while the live runs report a step a second
each, and memory is read every half minute: of the server, and of the page after a collection.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import CDPSession, Page, sync_playwright

from llmops_kernel.store.store import RunStore
from tests.benchmarks.runs.table import growing, make
from tests.browser.lab import CHROMIUM, FLAGS, Lab
from tests.browser.lab_page import LabPage

SAMPLE_S = 30.0
# Does something, waits until the text of the page's part changes to what is expected, and returns
# the milliseconds until the frame after that.
TIMED = """async ([act, is]) => {
  const table = () => document.querySelector('.llmops-runtable');
  const first = () => table()?.querySelector('.llmops-runtable-line[data-run-id]')?.dataset.runId;
  const counts = () => table()?.querySelector('.llmops-runtable-counts')?.textContent ?? '';
  const before = first();
  const begin = performance.now();
  new Function('app', act)(window.jupyterapp);
  const done = new Function('first', 'counts', 'before', `return ${is}`);
  while (!done(first(), counts(), before)) {
    if (performance.now() - begin > 30000) throw new Error(`never: ${is}; ${counts()}`);
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""
OPEN = "void app.commands.execute('llmops:show-run-table', {where: '', sort: '', group: ''})"
SORT = """[...document.querySelectorAll('.llmops-runtable-head button')]
  .find(one => one.textContent.includes(%r)).click()"""
# As typed and sent with Return: otherwise the table waits 350 ms for the next key.
FILTER = """const box = document.querySelector('.llmops-runtable-filter');
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(box, %r);
  box.dispatchEvent(new Event('input', {bubbles: true}));
  setTimeout(() => box.dispatchEvent(
    new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})), 0)"""
# "10,000 of 10,000 runs"
EVERY = "counts.split(' of ')[1]?.startsWith(counts.split(' of ')[0] + ' ')"
WATCH = """() => {
  window.llmopsLong = [];
  new PerformanceObserver(list => window.llmopsLong.push(...list.getEntries().map(e => e.duration)))
    .observe({entryTypes: ['longtask']});
}"""


class Latency:
    """How long a request that needs nothing waits: the server's loop is blocked as long."""

    def __init__(self, lab: Lab) -> None:
        self._url = f"{lab.url}/api?token={lab.token}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.ms: list[float] = []

    def _ask(self) -> None:
        while not self._stop.wait(0.2):
            begun_s = time.perf_counter()
            with urllib.request.urlopen(self._url, timeout=60) as answer:
                answer.read()
            self.ms.append((time.perf_counter() - begun_s) * 1e3)

    @contextmanager
    def measured(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._stop.set()
        self._thread.join()


def line(name: str, values: list[float]) -> None:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(
        f"{name:34} median {statistics.median(ordered):7.1f} ms"
        f" ({ordered[0]:.1f} - {ordered[-1]:.1f}), p95 {p95:.1f}, {len(ordered)} times",
        flush=True,
    )


def questions(page: Page, *, rounds: int) -> None:
    """Sort and filter in the open table, again and again while the live runs report."""
    took: dict[str, list[float]] = {}

    def ask(name: str, act: str, until: str) -> None:
        took.setdefault(name, []).append(page.evaluate(TIMED, [act, until]))
        page.wait_for_timeout(700)

    for number in range(rounds):
        ask("sort by a figure", SORT % "eval loss", "first !== before")
        ask("sort the other way", SORT % "eval loss", "first !== before")
        bound = 0.4 + number / 100  # A question that nothing has answered before.
        where = f"method.r > 8 and eval_loss < {bound}"
        ask("filter", FILTER % where, f"!{EVERY}")
        ask("all runs again", FILTER % "", EVERY)
    for name, values in took.items():
        line(name, values)


def follow(lab: Lab, page: Page, *, minutes: float) -> dict[str, Any]:
    """Memory and processor time of the server and the page while nobody does anything."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    server = psutil.Process(lab.process.pid)
    busy_s = _metrics(session)["TaskDuration"]
    rows: list[tuple[float, float, float]] = []
    begun_s, cpu_s = time.monotonic(), sum(server.cpu_times()[:2])
    while (passed_s := time.monotonic() - begun_s) < minutes * 60:
        page.wait_for_timeout(min(SAMPLE_S, minutes * 60 - passed_s) * 1000)
        session.send("HeapProfiler.collectGarbage")
        heap = session.send("Runtime.getHeapUsage")["usedSize"] / 2**20
        rows.append((time.monotonic() - begun_s, server.memory_info().rss / 2**20, heap))
        at_s, memory, used = rows[-1]
        print(f"  {at_s:5.0f} s  server {memory:6.1f}  page {used:6.1f} MiB", flush=True)
    counted = _metrics(session)
    later = rows[len(rows) // 3 :]
    times_s = [at for at, _, _ in later]
    slopes = [
        statistics.linear_regression(times_s, [row[index] for row in later]).slope * 60
        for index in (1, 2)
    ]
    return {
        "minutes": round(rows[-1][0] / 60, 1),
        "server_mib": [round(rows[0][1], 1), round(later[0][1], 1), round(rows[-1][1], 1)],
        "page_mib": [round(rows[0][2], 1), round(later[0][2], 1), round(rows[-1][2], 1)],
        "mib_per_minute_after_a_third": [round(slope, 3) for slope in slopes],
        "server_cores": round((sum(server.cpu_times()[:2]) - cpu_s) / rows[-1][0], 3),
        "page_cores": round((counted["TaskDuration"] - busy_s) / rows[-1][0], 3),
        "page_nodes": counted["Nodes"],
    }


def _metrics(session: CDPSession) -> dict[str, float]:
    return {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}


def measure(root: Path, folder: Path, options: argparse.Namespace) -> None:
    os.environ["LLMOPS_HOME"] = os.environ["LLMOPS_CACHE"] = str(root)
    store, noise = RunStore(root), random.Random(7)
    kept, first_live = bool(store.ids()), options.runs - options.live
    for number in range(first_live if kept else 0, options.runs):
        make(store, number, noise=noise, is_live=number >= first_live)
    ids = store.ids()[: options.live]
    with sync_playwright() as driver, growing(store, ids):
        lab = Lab(folder, home=root)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            lab.wait()
            watch(lab, browser.new_page(viewport={"width": 1600, "height": 1000}), options)
        finally:
            browser.close()
            lab.stop()


def watch(lab: Lab, page: Page, options: argparse.Namespace) -> None:
    tab = LabPage(page, lab)
    opened: list[float] = []
    for _ in range(options.opened):
        tab.open()
        page.wait_for_timeout(3000)
        opened.append(page.evaluate(TIMED, [OPEN, "first && counts"]))
        print(f"  opened in {opened[-1]:.0f} ms", file=sys.stderr, flush=True)
    line("table opens, a new page each time", opened)
    tab.command("llmops:show-runs")
    page.locator(".llmops-runtable-counts", has_text="of").wait_for()
    while "reading" in page.locator(".llmops-runtable-counts").inner_text():
        page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    latency = Latency(lab)
    with latency.measured():
        questions(page, rounds=options.rounds)
    line("a request that needs nothing", latency.ms)
    long = page.evaluate("() => window.llmopsLong")
    print(f"tasks of the page over 50 ms: {len(long)}, longest {max(long, default=0):.0f} ms")
    live(lab, options)
    if options.minutes:
        tab.frames.clear()
        print(json.dumps(follow(lab, page, minutes=options.minutes)))
        live(lab, options)


def live(lab: Lab, options: argparse.Namespace) -> None:
    """Raise an error if the runs that shall be live are not shown as such."""
    request = urllib.request.Request(
        f"{lab.url}/llmops/run-table",
        data=json.dumps({"where": 'state == "running"'}).encode(),
        headers={"Authorization": f"token {lab.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)["matched"]
    if found != options.live:
        raise RuntimeError(f"{found} runs are shown as running, not {options.live}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=100)
    parser.add_argument("--opened", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=0.0, help="0, or 2 and more")
    parser.add_argument("--store", type=Path, help="made if it is empty, and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder:
        root = options.store or Path(folder) / "store"
        measure(root, Path(folder), options)


if __name__ == "__main__":
    main()
