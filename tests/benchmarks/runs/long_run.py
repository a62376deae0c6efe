"""A run of a million steps with 200 metrics: its first read, and how fast it opens after that.

    python -m tests.benchmarks.runs.long_run --steps 1000000 --metrics 200 [--page 5] [--ended]

Its journal has 5 GB. The first read goes through all of it in bounded memory, in a process of its
own; each later one, also in a new process, goes on from what the first has kept. With `--page` it
is opened in a real Lab too, in a new page each time, from the command to the drawn curves.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from llmops_kernel.metrics.events import EndEvent, StartEvent, StepEvent
from llmops_kernel.server.runs.feed import RunFeed
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.benchmarks.lab_panel import OPEN
from tests.browser.lab import CHROMIUM, FLAGS, Lab
from tests.browser.lab_page import LabPage

RUN_ID = "long-260901-101500-a1b2"
BEGUN_S = 1_790_000_000
_NUMBER = 1_234_567_890
_PLACE = {"stream": "1-worker-1", "attempt": 1}


def make(store: RunStore, *, steps: int, metrics: int, ended: bool) -> Path:
    record = RunRecord(run_id=RUN_ID, name="long", created_s=1.0, cluster="local", config={})
    folder = store.create(record, config_yaml="")
    folder.journal.mkdir(parents=True, exist_ok=True)
    noise = random.Random(7)
    # Different lines, as many digits as a real run writes; only the number is another each time.
    lines = [_line(noise, metrics=metrics) for _ in range(499)]
    shape = {"num_workers": 1, "global_batch_size": 8, "device": "CPU", "dtype": "float32"}
    start = StartEvent(total_steps=steps, seq=1, time_s=BEGUN_S, **_PLACE, **shape)
    end = EndEvent(state="SUCCEEDED", seq=steps + 2, time_s=BEGUN_S + steps, **_PLACE)
    path = folder.journal / "1-worker-1.jsonl"
    with path.open("w", buffering=2**22) as file:
        file.write(f"{start.model_dump_json()}\n")
        for step in range(1, steps + 1):
            head, middle, rest = lines[step % len(lines)]
            file.write(f"{head}{step + 1}{middle}{step}{rest}\n")
        if ended:
            file.write(f"{end.model_dump_json()}\n")
    return path


def _line(noise: random.Random, *, metrics: int) -> list[str]:
    event = StepEvent(
        step=_NUMBER,
        seq=_NUMBER,
        time_s=BEGUN_S + noise.random(),
        loss=noise.random(),
        learning_rate=1e-4 * noise.random(),
        grad_norm=noise.random(),
        step_time_s=0.05 + noise.random() / 100,
        tokens=2048,
        tokens_per_second=20_000 + noise.random(),
        mfu=0.4 + noise.random() / 100,
        peak_memory_bytes=10**9,
        values={f"metric_{number}": noise.random() for number in range(metrics)},
        **_PLACE,
    )
    return event.model_dump_json(exclude_none=True).split(str(_NUMBER))


def open_once() -> None:
    """In a fresh process: what a server does until it has all that the page needs."""
    store = RunStore()
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    followers = Followers(Backend(store=store))
    feed = RunFeed(RUN_ID, followers=followers, store=store, read_s=math.inf)
    feed.poll()
    frames, _ = feed.news(None, {})
    wall, cpu = time.perf_counter() - begun_s, time.process_time() - cpu_s
    sent = sum(len(frame.payload or b"") for frame in frames)
    rows = next(frame.data["count"] for frame in frames if frame.kind == "rows")
    feed.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"{wall:.2f} s, of processor {cpu:.2f} s; {rows:,} rows, {sent / 2**20:.1f} MiB sent;"
        f" most memory of the process {peak:,.0f} MiB",
        flush=True,
    )


def page(root: Path, folder: Path, *, steps: int, times: int) -> None:
    with sync_playwright() as driver:
        lab = Lab(folder, home=root)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            lab.wait()
            took: list[float] = []
            for _ in range(times):
                own = browser.new_page(viewport={"width": 1280, "height": 900})
                LabPage(own, lab).open()
                own.wait_for_timeout(3000)
                took.append(own.evaluate(OPEN, [RUN_ID, f"step {steps:,} of {steps:,}"]))
                own.close()
        finally:
            browser.close()
            lab.stop()
    print(
        f"from the command to the drawn curves, a new page each time: first {took[0]:.2f} s,"
        f" median of {times} {statistics.median(took):.2f} s ({min(took):.2f} - {max(took):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=int, default=0)
    parser.add_argument("--ended", action="store_true")
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        open_once()
        return
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder:
        root = Path(folder) / "home"
        os.environ["LLMOPS_HOME"], os.environ["LLMOPS_CACHE"] = str(root), f"{folder}/cache"
        begun_s = time.perf_counter()
        path = make(RunStore(), steps=options.steps, metrics=options.metrics, ended=options.ended)
        size, took_s = path.stat().st_size / 2**30, time.perf_counter() - begun_s
        print(f"journal of {size:.2f} GiB, written in {took_s:.0f} s")
        again = [sys.executable, "-m", "tests.benchmarks.runs.long_run", "--open"]
        for number in range(options.rounds + 1):
            print("first read:" if not number else "again, a new process:", end=" ", flush=True)
            subprocess.run(again, check=True)
        if options.page:
            page(root, Path(folder), steps=options.steps, times=options.page)


if __name__ == "__main__":
    main()
