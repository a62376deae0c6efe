"""10,000 runs, 100 of them live: how fast the table opens, sorts and filters, and the side bar.

python -m tests.benchmarks.run_table --runs 10000 --live 100 --rounds 5
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from llmops_kernel.metrics.events import EndEvent, EvalEvent, StartEvent, StepEvent
from llmops_kernel.server.run_table import LiveTable
from llmops_kernel.server.run_table_routes import answer
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.server.wire.run_table import RunTableQuery
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.journal.view import FEW_CELLS
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

_SHAPE = {"num_workers": 1, "global_batch_size": 8, "device": "cpu", "dtype": "float32"}
_FUTURE_S = 86_400.0
QUESTIONS = {
    "first window": {},
    "sort by a figure": {"sort": "-eval_loss"},
    "sort by a text": {"sort": "run"},
    "filter": {"where": "method.r > 8 and eval_loss < 0.4"},
    "filter by text and tag": {"where": "'sweep-1' in name or 'best' in tags"},
    "group, sort and filter": {"where": "loss < 0.5", "group": "name", "sort": "eval_loss"},
    "colour by a column": {"colour_by": "optimizer.learning_rate"},
    "window at the end": {"sort": "loss", "first": 9_900},
}


def make(store: RunStore, number: int, *, noise: random.Random, is_live: bool) -> None:
    """Write a run's files without waiting for the disk: ten thousand syncs take minutes."""
    sections = {f"s{i}": {f"key_{j}": j for j in range(10)} for i in range(6)}
    rate, r = noise.choice([1e-4, 5e-4, 1e-3, 2e-3]), noise.choice([4, 8, 16, 32])
    config = {**sections, "optimizer": {"learning_rate": rate}, "method": {"r": r, "type": "lora"}}
    name = f"sweep-{number // 250}"
    record = RunRecord(
        run_id=f"{name}-{number:05d}",
        name=name,
        # A live run is of the future: nobody submits it, and a server that sees no step for a while
        # would find that its client is gone, and report it as failed.
        created_s=time.time() + _FUTURE_S if is_live else 1.79e9 + number,
        cluster="local",
        config=config,
        files={f"file_{n}.py": "0123456789abcdef" for n in range(20)},
    )
    root = store.root / "runs" / record.run_id
    shutil.rmtree(root, ignore_errors=True)
    (root / "journal").mkdir(parents=True)
    events = [
        StartEvent(total_steps=100, stream="1-worker-1", seq=1, time_s=1.79e9, **_SHAPE),
        *(step(n, noise) for n in range(1, 21)),
        EvalEvent(
            step=20,
            metrics={"eval_loss": noise.random(), "accuracy": noise.random()},
            num_rows=4,
            duration_s=1,
            stream="1-worker-1",
            seq=22,
            time_s=1.79e9,
        ),
    ]
    if not is_live:
        events.append(EndEvent(state="SUCCEEDED", stream="1-worker-1", seq=23, time_s=1.79e9))
    lines = "".join(f"{event.model_dump_json()}\n" for event in events)
    (root / "journal" / "1-worker-1.jsonl").write_text(lines)
    (root / "record.json").write_text(record.model_dump_json())


def step(number: int, noise: random.Random, *, seq: int | None = None) -> StepEvent:
    return StepEvent(
        step=number,
        loss=noise.random(),
        step_time_s=0.1,
        tokens_per_second=1000 * noise.random(),
        mfu=noise.random() / 2,
        stream="1-worker-1",
        seq=seq or number + 1,
        time_s=1.79e9 + number,
    )


def _lines(store: RunStore, run_id: str) -> int:
    """A store that is kept has the lines of earlier rounds: their numbers are not used again."""
    path = store.root / "runs" / run_id / "journal" / "1-worker-1.jsonl"
    with path.open() as file:
        return sum(1 for _ in file)


@contextmanager
def growing(store: RunStore, run_ids: list[str]) -> Iterator[None]:
    """The journals of these runs get a step a second each, from a thread of its own."""
    stop, noise = threading.Event(), random.Random(3)

    def write() -> None:
        number = _lines(store, run_ids[0])
        while not stop.wait(1.0):
            number += 1
            for run_id in run_ids:
                path = store.root / "runs" / run_id / "journal" / "1-worker-1.jsonl"
                with path.open("a") as file:
                    event = step(number, noise, seq=number)
                    file.write(f"{event.model_dump_json()}\n")

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


Took = tuple[float, float]
"""Milliseconds by the clock, and of this thread's processor time: the machine may be busy."""


def ms(work: Callable[[], object]) -> Took:
    begun_s, cpu_s = time.perf_counter(), time.thread_time()
    work()
    return (time.perf_counter() - begun_s) * 1e3, (time.thread_time() - cpu_s) * 1e3


def report(name: str, values: list[Took]) -> None:
    clock, cpu = [wall for wall, _ in values], [cpu for _, cpu in values]
    print(
        f"{name:38} {statistics.median(clock):8.1f} ms ({min(clock):.1f} - {max(clock):.1f}),"
        f" of processor {statistics.median(cpu):.1f} ms ({min(cpu):.1f} - {max(cpu):.1f}),"
        f" {len(values)} times",
        flush=True,
    )


def _followers(store: RunStore) -> Followers:
    """As the server makes them for its list."""
    return Followers(Backend(store=store, providers=list), live_cells=FEW_CELLS)


def open_once(root: Path) -> None:
    """In a fresh process: the first answer of a server that has just started."""
    store = RunStore(root)
    rows = RunRows(store, _followers(store))
    live = LiveTable(store, rows)
    took = ms(lambda: answer(live, RunTableQuery()))
    megabytes = psutil.Process().memory_info().rss / 2**20
    print(f"{took[0]:.1f} {took[1]:.1f} {megabytes:.0f}")


def serve(root: Path, live_ids: list[str], *, rounds: int, minutes: float) -> None:
    """Questions and looks of the side bar while the live runs grow."""
    store = RunStore(root)
    rows = RunRows(store, _followers(store))
    rows.open()
    report("side bar's first look", [ms(rows.look)])
    live = LiveTable(store, rows)
    answer(live, RunTableQuery())
    with growing(store, live_ids):
        looks: list[Took] = []
        took: dict[str, list[Took]] = {name: [] for name in QUESTIONS}
        for _ in range(rounds):
            looks.append(ms(rows.look))
            for name, query in QUESTIONS.items():
                took[name].append(ms(lambda query=query: answer(live, RunTableQuery(**query))))
            time.sleep(1.0)
        report("side bar's look", looks)
        for name, values in took.items():
            report(name, values)
        follow(live, rows, minutes=minutes)
    rows.close()


def follow(live: LiveTable, rows: RunRows, *, minutes: float) -> None:
    """Memory of a server whose page asks once a second."""
    until_s, process = time.monotonic() + 60 * minutes, psutil.Process()
    seen: list[float] = []
    while time.monotonic() < until_s:
        rows.look()
        answer(live, RunTableQuery(sort="-eval_loss"))
        seen.append(process.memory_info().rss / 2**20)
        time.sleep(1.0)
    if len(seen) > 20:
        third = len(seen) // 3
        first, last = statistics.median(seen[third : 2 * third]), statistics.median(seen[-third:])
        print(f"memory, middle and last third of {minutes:g} min: {first:.1f}, {last:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--store", type=Path, help="made if it is empty, and kept")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open is not None:
        open_once(arguments.open)
        return
    if arguments.store is not None:
        measure(arguments.store, arguments)
        return
    with tempfile.TemporaryDirectory(prefix="llmops-runs-") as folder:
        measure(Path(folder), arguments)


def measure(root: Path, arguments: argparse.Namespace) -> None:
    os.environ["LLMOPS_HOME"] = os.environ["LLMOPS_CACHE"] = str(root)
    noise, store = random.Random(7), RunStore(root)
    for number in range(0 if store.ids() else arguments.runs):
        make(store, number, noise=noise, is_live=number >= arguments.runs - arguments.live)
    rows = RunRows(store, _followers(store))
    table = LiveTable(store, rows).table
    report("reading every journal that has grown", [ms(table.refresh)])
    command = [sys.executable, "-m", "tests.benchmarks.run_table", "--open", str(root)]
    outputs = [subprocess.check_output(command, text=True) for _ in range(arguments.rounds)]
    opened = [tuple(map(float, output.split())) for output in outputs]
    report("open in a fresh process", [(wall, cpu) for wall, cpu, _ in opened])
    print(f"memory of that process: {statistics.median(m for _, _, m in opened):.0f} MiB")
    ids = store.ids()[: arguments.live]
    serve(root, ids, rounds=arguments.rounds, minutes=arguments.minutes)


if __name__ == "__main__":
    main()
