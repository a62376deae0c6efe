"""How fast a run opens and is followed: `python -m tests.benchmarks.open_run [--steps N ...]`.

Not a timed test: it prints milliseconds, best of a few, for journals of several lengths.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmops_kernel.jobs.follow import Follower
from llmops_kernel.metrics.events import StartEvent, StepEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.columns import PackedRows
from llmops_kernel.views.snapshot import snapshot

TRIES = 3
POLLS = 50


def step(number: int, *, noise: random.Random) -> StepEvent:
    """All fields told, with as many digits as a real run writes."""
    return StepEvent(
        step=number,
        epoch=number / 1000,
        loss=2 / (1 + number / 500) + noise.random() / 10,
        learning_rate=1e-4 * noise.random(),
        grad_norm=noise.random(),
        step_time_s=0.05 + noise.random() / 100,
        data_wait_s=noise.random() / 1000,
        compute_s=0.05,
        tokens=2048,
        tokens_per_second=20_000 + noise.random(),
        flops=1.2e12,
        mfu=0.4 + noise.random() / 100,
        peak_memory_bytes=10**9 + number,
        host_memory_bytes=10**9,
    )


def make_run(store: RunStore, run_id: str, *, steps: int) -> JournalWriter:
    record = RunRecord(run_id=run_id, name="bench", created_s=1.0, cluster="local", config={})
    folder = store.create(record, config_yaml="")
    noise, clock = random.Random(7), iter(range(1_790_000_000, 1_900_000_000))
    writer = JournalWriter(
        [folder.journal], stream="1-worker-1", attempt=1, clock=lambda: float(next(clock))
    )
    facts: dict[str, Any] = {"num_workers": 1, "global_batch_size": 8, "device": "CPU"}
    writer.emit(StartEvent(total_steps=steps + POLLS * 10, dtype="float32", **facts))
    for number in range(1, steps + 1):
        writer.emit(step(number, noise=noise))
    return writer


def timed_ms(work: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    work()
    return (time.perf_counter() - begun_s) * 1e3


class Opening:
    """One cold open, taken apart."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.record = store.record(run_id)
        self.follower = Follower(store, run_id, remote=False)
        self.packed = PackedRows()
        self.ms = {
            "poll": timed_ms(self.follower.poll),
            "pack": timed_ms(lambda: self.packed.sync(self.follower.view)),
            "snapshot": timed_ms(self.snapshot),
        }
        self.ms["open"] = sum(self.ms.values())

    def snapshot(self) -> object:
        return snapshot(self.follower.view, self.record, now_s=time.time())

    def next_poll(self) -> None:
        self.follower.poll()
        self.packed.sync(self.follower.view)


def measure(store: RunStore, *, steps: int) -> dict[str, float]:
    run_id = f"bench-{steps}"
    writer = make_run(store, run_id, steps=steps)
    openings = [Opening(store, run_id) for _ in range(TRIES)]
    best = {name: min(o.ms[name] for o in openings) for name in openings[0].ms}
    opening, noise, later = openings[-1], random.Random(8), []
    for number in range(POLLS):
        for i in range(3):
            writer.emit(step(steps + 3 * number + i + 1, noise=noise))
        later.append(timed_ms(opening.next_poll))
    best["later poll"] = sorted(later)[POLLS // 2]
    best["later snapshot"] = min(timed_ms(opening.snapshot) for _ in range(TRIES))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-open-") as folder:
        store = RunStore(Path(folder))
        for steps in arguments.steps:
            figures = measure(store, steps=steps)
            reported = "  ".join(f"{name} {value:8.2f} ms" for name, value in figures.items())
            print(f"{steps:>9,} steps  {reported}", flush=True)


if __name__ == "__main__":
    main()
