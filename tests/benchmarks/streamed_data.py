"""Training data larger than memory: time to the first step, tokens per second, memory over time.

    python -m tests.benchmarks.streamed_data --gigabytes 20 [--minutes 3] [--folder /big/disk]

Half JSONL, half Parquet, each in files of a quarter GB at most that are hard links of one another:
the workers read them all, and the disk holds one of each kind. A tiny model is trained by two
workers through Ray on a local cluster, until the minutes are over, then the run is stopped. Beside
it, on the same cluster, the first 10 MB are trained on from memory (`--no-memory` leaves that out).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

_MIB = 1 << 20
_FILE_BYTES = 256 * _MIB
_MEMORY_BYTES = 10_000_000
_WORKER = "RayTrainWorker"
_QUARTERS = (0.1, 0.25, 0.5, 0.75, 1.0)
_START_S = 600


def row(number: int, draw: random.Random) -> dict[str, str]:
    """A question and an answer of 20 to 200 words."""
    words = " ".join(draw.choices(_WORDS, k=draw.randint(20, 200)))
    return {"prompt": f"What is said in document {number}?", "completion": words}


_WORDS = [f"word{n}" for n in range(500)]


def write(folder: Path, total: int) -> list[Path]:
    """Write `total` bytes of rows, half of them JSONL, and return the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    size = min(_FILE_BYTES, total // 2)
    draw, rows, written = random.Random(0), [], 0
    first = folder / "rows-000.jsonl"
    with first.open("w") as file:
        while written < size:
            rows.append(row(len(rows), draw))
            written += file.write(json.dumps(rows[-1]) + "\n")
    table = folder / "rows-000.parquet"
    # As large as its text: compressed it would be read in no time.
    pq.write_table(
        pa.Table.from_pylist(rows),
        table,
        row_group_size=20_000,
        compression="none",
        use_dictionary=False,
    )
    found = [first, table]
    for number in range(1, total // (2 * size)):
        for one in (first, table):
            name = one.with_stem(f"rows-{number:03}")
            os.link(one, name)
            found.append(name)
    return found


def workers() -> list[psutil.Process]:
    """The worker processes of this benchmark's cluster."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            is_worker = _WORKER in " ".join(process.info["cmdline"] or [])
            if is_worker and process.environ().get("LLMOPS_HOME") == os.environ["LLMOPS_HOME"]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def config(data: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "streamed",
        "model": "tiny-llama",
        "data": {"train": str(data), "max_length": 256, **more},
        "parallelism": {"num_workers": 2},
        "training": {"micro_batch_size": 4, "global_batch_size": 32, "max_steps": 1_000_000},
    }


def train(cluster: Any, folder: Path, settings: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Train so long after the first step; return what was measured."""
    path = folder / "streamed.train.yaml"
    path.write_text(json.dumps(settings))
    run = cluster.submit(path)
    began_s = time.monotonic()
    while not run.view.steps:
        if run.has_ended or time.monotonic() - began_s > _START_S:
            raise SystemExit(f"no first step: {run.view.message}\n{run.logs(tail=40)}")
        time.sleep(0.2)
    memory: list[list[int]] = []
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < minutes * 60 and not run.has_ended:
        memory.append([one.memory_info().rss for one in workers()])
        time.sleep(1.0)
    run.stop()
    run.wait(_START_S, raise_on_failure=False)
    view = run.view
    spans = {span.name: span for span in view.phases()}
    steps = view.steps[5:] or view.steps
    return {
        "first_step_s": view.submit_to_first_step_s,
        "data_s": spans["data"].duration_s if "data" in spans else None,
        "steps": len(view.steps),
        "tokens_per_second": statistics.median(s.tokens_per_second or 0 for s in steps),
        "data_wait": sum(s.data_wait_s or 0 for s in steps)
        / sum(s.step_time_s or 0 for s in steps),
        "memory": [one for one in memory if len(one) == 2],
    }


def report(title: str, found: dict[str, Any]) -> None:
    data = "-" if found["data_s"] is None else f"{found['data_s']:.2f} s"
    print(f"\n{title}")
    print(f"  submit to first step  {found['first_step_s']:.2f} s (of it data {data})")
    speed, steps = found["tokens_per_second"], found["steps"]
    print(f"  tokens per second     {speed:,.0f} (median of {steps:,} steps)")
    print(f"  waited for data       {found['data_wait']:.1%} of the steps' time")
    memory = found["memory"]
    for share in _QUARTERS:
        if memory:
            at = memory[min(len(memory) - 1, int(share * len(memory)))]
            sizes = "  ".join(f"{size / _MIB:7,.0f} MiB" for size in sorted(at))
            print(f"  workers at {share:4.0%}       {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--folder", type=Path, help="where the data is written; default: TMPDIR")
    parser.add_argument("--no-memory", action="store_true")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="llmops-streamed-", dir=arguments.folder))
    os.environ["LLMOPS_HOME"] = str(root / "home")
    try:
        measure(root, arguments)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def measure(root: Path, arguments: argparse.Namespace) -> None:
    import llmops_kernel as llmops

    files = write(root / "data", int(arguments.gigabytes * 1e9))
    total = sum(file.stat().st_size for file in files)
    small = root / "small.jsonl"
    with files[0].open("rb") as source:
        lines = source.readlines(_MEMORY_BYTES)
    small.write_bytes(b"".join(lines))
    folder = root / "workspace"
    folder.mkdir()
    cluster = llmops.up("local")
    try:
        train(cluster, folder, config(small, max_rows=500), 0.1)  # Loads what the first run loads.
        if not arguments.no_memory:
            found = train(cluster, folder, config(small, streaming=False), arguments.minutes / 3)
            report(f"{small.stat().st_size / 1e6:.0f} MB in memory", found)
        found = train(cluster, folder, config(root / "data"), arguments.minutes)
        report(f"{total / 1e9:.1f} GB in {len(files)} files, streamed", found)
    finally:
        cluster.down(force=True)


if __name__ == "__main__":
    main()
