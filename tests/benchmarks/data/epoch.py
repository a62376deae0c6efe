"""A whole epoch of large data with a killed worker: figures, and each row by its id.

    nice -n 15 python -m tests.benchmarks.data.epoch --gigabytes 20 [--row-bytes 65536]
    python -m tests.benchmarks.data.epoch --gigabytes 0.4 --store s3  # or gcs, azure: `make stores`

Half JSONL, half Parquet, all of it different, on the disk or in a store's server of this machine.
A row is a short question and answer beside a long text that is read and not trained on, and its
first 16 tokens are trained on: all tokens of 20 GB would take this machine days. A tiny model is
trained by two workers through Ray on a local cluster for one epoch; one of them is killed on the
way. A hook notes the id of each row that a worker reads to train on; at the end they are compared
with the ids in the files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.benchmarks.streamed_data import workers

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB
_GROUP_BYTES = 8 * _MIB
_SEED = 11
_BATCH = 128
_WORDS = [f"word{number}" for number in range(500)]
_WAIT_S = 3600
_HOOKS = """
import os, threading, time
from pathlib import Path

FOLDER = Path({folder!r})
_file = None

def format_example(row):
    global _file
    if threading.current_thread().name == "llmops-rows":
        if _file is None:
            _file = (FOLDER / f"{{os.environ['RANK']}}-{{time.time_ns()}}.txt").open("a", 1)
        print(row["id"], file=_file)
    return row
"""
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


class Rows:
    """Rows with ids from 0 on; each has a long text of its own."""

    def __init__(self, row_bytes: int) -> None:
        self._draw = random.Random(_SEED)
        self._pool = "".join(self._draw.choices(string.ascii_letters + " ", k=4 * row_bytes))
        self._row_bytes, self.count = row_bytes, 0

    def some(self, num_bytes: int) -> list[dict[str, Any]]:
        """Return the next rows, of so many bytes altogether."""
        return [self._next() for _ in range(max(1, num_bytes // self._row_bytes))]

    def _next(self) -> dict[str, Any]:
        begin = self._draw.randrange(3 * self._row_bytes)
        answer = " ".join(self._draw.choices(_WORDS, k=self._draw.randint(3, 12)))
        self.count += 1
        return {
            "id": self.count - 1,
            "prompt": f"What is said in document {self.count - 1}?",
            "completion": answer,
            "page": self._pool[begin : begin + self._row_bytes],
        }


def write(folder: Path, total: int, row_bytes: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    rows, size = Rows(row_bytes), min(_FILE_BYTES, total // 2)
    for number in range(max(1, round(total / size / 2))):
        with (folder / f"rows-{number:03}.jsonl").open("w") as file:
            for _ in range(0, size, _GROUP_BYTES):
                file.writelines(json.dumps(row) + "\n" for row in rows.some(_GROUP_BYTES))
        first = pa.Table.from_pylist(rows.some(_GROUP_BYTES))
        with pq.ParquetWriter(
            folder / f"rows-{number:03}.parquet",
            first.schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        ) as writer:
            writer.write_table(first)
            for _ in range(_GROUP_BYTES, size, _GROUP_BYTES):
                writer.write_table(pa.Table.from_pylist(rows.some(_GROUP_BYTES), first.schema))


def settings(source: str, on_error: str) -> dict[str, Any]:
    return {
        "name": "epoch",
        "hooks": "noted.py",
        "model": "tiny-llama",
        "seed": _SEED,
        "data": {
            "train": source,
            "max_length": 16,
            "loss_on": "all",
            "streaming": True,
            "on_error": on_error,
        },
        "parallelism": {"num_workers": 2},
        "training": {"micro_batch_size": 32, "global_batch_size": _BATCH, "num_epochs": 1},
        "checkpoint": {"every_steps": 100},
    }


class Watch:
    """Follows a run, kills a worker of it once, and notes the workers' memory."""

    def __init__(self, run: Any, kill_at: float) -> None:
        self._run, self._kill_at = run, kill_at
        self.killed_at: float | None = None
        self.memory: list[tuple[tuple[int, ...], list[int]]] = []
        """Process ids of the workers, and what each held."""

    def follow(self) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not self._run.has_ended and time.monotonic() < deadline:
            found = workers()
            held = [(one.pid, one.memory_info().rss) for one in found if one.is_running()]
            steps = self._run.view.steps
            if steps and len(held) == 2:
                pids, sizes = zip(*sorted(held), strict=True)
                self.memory.append((pids, list(sizes)))
            is_due = steps and (steps[-1].epoch or 0) >= self._kill_at
            if is_due and self.killed_at is None and found:
                self.killed_at = steps[-1].epoch
                found[-1].kill()
            time.sleep(1.0)


def ids_in(source: str) -> list[int]:
    """Return the ids in the files."""
    from llmops_kernel.train.data.stream.plan import plan_stream
    from llmops_kernel.train.data.stream.reader import read

    plan = plan_stream(source, roots=[])
    parts = [read(plan.files, part) for part in plan.parts]
    return [rows.row(number, "")["id"] for rows in parts for number in range(len(rows))]


def trained(run: Any, folder: Path) -> list[tuple[int, int]]:
    """Return the id of each row that the model was trained on, with the worker's rank.

    A worker that was killed has trained up to the checkpoint that the next ones went on from.
    """
    ends = [one.from_step * _BATCH // 2 for one in run.view.restarts]
    found = []
    for rank in range(2):
        files = sorted(folder.glob(f"{rank}-*.txt"), key=lambda file: int(file.stem.split("-")[1]))
        begin = 0
        for number, file in enumerate(files):
            end = ends[number] if number < len(ends) else None
            ids = list(map(int, file.read_text().split()))
            found += [(one, rank) for one in ids[: None if end is None else end - begin]]
            begin = end or 0
    return found


def report(run: Any, watch: Watch, ids: Sequence[int], seen: Sequence[tuple[int, int]]) -> bool:
    """Print the figures; return whether each row was seen once."""
    view, counts = run.view, Counter(number for number, _ in seen)
    spans = {span.name: span for span in view.phases()}
    steps = view.steps[5:] or view.steps
    wait = sum(one.data_wait_s or 0 for one in steps) / sum(one.step_time_s or 0 for one in steps)
    speed = statistics.median(one.tokens_per_second or 0 for one in steps)
    data = f"{spans['data'].duration_s:.2f} s" if "data" in spans else "-"
    print(f"  run                   {run.state}, {len(view.steps):,} steps")
    print(f"  submit to first step  {view.submit_to_first_step_s:.2f} s (of it data {data})")
    print(f"  tokens per second     {speed:,.0f} (median)")
    print(f"  waited for data       {wait:.1%} of the steps' time")
    killed = "no worker" if watch.killed_at is None else f"a worker at {watch.killed_at:.2f} epochs"
    print(f"  killed                {killed}; restarts {len(view.restarts)}")
    for pids in dict.fromkeys(pids for pids, _ in watch.memory):
        held = [sizes for own, sizes in watch.memory if own == pids]
        for share in _SHARES:
            sizes = held[min(len(held) - 1, int(share * len(held)))]
            words = "  ".join(f"{size / _MIB:7,.0f} MiB" for size in sizes)
            print(f"  {pids} at {share:4.0%} {words}")
        most = "  ".join(f"{max(one) / _MIB:7,.0f} MiB" for one in zip(*held, strict=True))
        print(f"  {pids} most    {most}")
    ranks = dict(sorted(Counter(rank for _, rank in seen).items()))
    once = sum(1 for number in set(ids) if counts[number] == 1)
    print(f"  rows                  {len(ids):,} in the files, {len(seen):,} trained on")
    print(f"  of them exactly once  {once:,}; by worker {ranks}")
    return once == len(ids) == len(seen)


def measure(root: Path, arguments: argparse.Namespace, stack: ExitStack) -> bool:
    import llmops_kernel as llmops
    from tests.tables.servers import start

    begin_s = time.monotonic()
    data = arguments.data or root / "data"
    if not data.exists():
        write(data, int(arguments.gigabytes * 1e9), arguments.row_bytes)
    files, source = sorted(data.iterdir()), str(data)
    size = sum(file.stat().st_size for file in files)
    if arguments.store:
        (root / "server").mkdir()
        store = stack.enter_context(getattr(start, arguments.store)(root / "server"))
        os.environ.update(store.env)
        for file in files:
            store.put(f"rows/{file.name}", file.read_bytes())
        source = f"{store.scheme}://{start.BUCKET}/rows"
    where = arguments.store or "disk"
    print(f"{size / 1e9:.2f} GB, {len(files)} files, {where}", end="")
    print(f"; written in {time.monotonic() - begin_s:.0f} s", flush=True)
    folder = root / "workspace"
    folder.mkdir()
    path = folder / "epoch.train.yaml"
    path.write_text(json.dumps(settings(source, "check" if arguments.check else "stop")))
    noted = root / "noted"
    noted.mkdir()
    (folder / "noted.py").write_text(_HOOKS.format(folder=str(noted)))
    cluster = llmops.up("local")
    stack.callback(lambda: cluster.down(force=True))
    begin_s = time.monotonic()
    run = cluster.submit(path)
    watch = Watch(run, arguments.kill_at)
    watch.follow()
    if not run.has_ended:
        run.stop()
    run.wait(600, raise_on_failure=False)
    print(f"  submit to end         {time.monotonic() - begin_s:.0f} s", flush=True)
    if not run.view.steps:
        raise SystemExit(f"no step: {run.view.message}\n{run.logs(tail=40)}")
    return report(run, watch, ids_in(source), trained(run, noted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--row-bytes", type=int, default=1 << 16)
    parser.add_argument("--kill-at", type=float, default=0.3, help="epochs; 2: no worker is killed")
    parser.add_argument("--store", choices=["s3", "gcs", "azure"], help="default: the disk")
    parser.add_argument("--check", action="store_true", help="read all rows before the training")
    parser.add_argument("--folder", type=Path, help="where the data is written; default: TMPDIR")
    parser.add_argument("--data", type=Path, help="written there, and used again; default: deleted")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="llmops-epoch-", dir=arguments.folder))
    os.environ["LLMOPS_HOME"] = str(root / "home")
    try:
        with ExitStack() as stack:
            is_whole = measure(root, arguments, stack)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(0 if is_whole else 1)


if __name__ == "__main__":
    main()
