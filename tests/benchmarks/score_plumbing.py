"""What scoring costs beside the engine: a million rows through one that answers at once.

    python -m tests.benchmarks.score_plumbing [--rows 1000000] [--replicas 1]

Prints rows per second, microseconds per row, and the resident memory of driver, scorers and engines
over the run, which must not grow with the number of rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

INSTANT = Path(__file__).parents[1] / "score" / "instant.py"
TITLES = {"driver": "score.driver", "scorer": "ray::Scorer", "engine": "ray::EngineActor"}
MIB = 1024**2


def write_table(path: Path, rows: int) -> None:
    """Write ids, a text of about 45 characters and an answer."""
    numbers = range(rows)
    table = {
        "id": [f"r{n}" for n in numbers],
        "text": [f"This is the text number {n} of the big table" for n in numbers],
        "answer": ["yes" if n % 2 else "no" for n in numbers],
    }
    pq.write_table(pa.table(table), path, row_group_size=100_000)


def memory() -> dict[str, int]:
    """Resident bytes of the run's processes, summed by role."""
    found: dict[str, int] = defaultdict(int)
    home = os.environ["LLMOPS_HOME"]
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        role = next((role for role, title in TITLES.items() if title in line), None)
        try:
            if role and process.environ().get("LLMOPS_HOME") == home:
                found[role] += process.memory_info().rss
        except psutil.Error:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--metrics", default="exact_match")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="llmops-b-"))
    os.environ["LLMOPS_HOME"] = str(root / "home")
    try:
        measure(root, arguments)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def measure(root: Path, arguments: argparse.Namespace) -> None:
    import llmops_kernel as llmops

    write_table(root / "big.parquet", arguments.rows)
    folder = root / "workspace"
    folder.mkdir()
    shutil.copy(INSTANT, folder)
    config = {
        "name": "plumbing",
        "model": "tiny-llama",
        "input": {"path": str(root / "big.parquet"), "key": "id"},
        "prompt": {"template": "{text}", "reference": "answer"},
        "engine": {
            "type": "instant:InstantEngine",
            "batch_size": 512,
            "replicas": arguments.replicas,
        },
        "output": {"part_rows": 10_000},
        "evaluation": {"metrics": arguments.metrics.split(",")},
    }
    path = folder / "plumbing.score.yaml"
    path.write_text(json.dumps(config))
    cluster = llmops.up("local")
    try:
        run = cluster.submit(path)
        seen: list[tuple[int, dict[str, int]]] = []
        while not run.has_ended:
            seen.append((run.view.last_step or 0, memory()))
            time.sleep(0.5)
        report(run, seen, arguments.rows)
    finally:
        cluster.down(force=True)


def report(run: object, seen: list[tuple[int, dict[str, int]]], rows: int) -> None:
    view = run.view  # type: ignore[attr-defined]
    assert view.state == "SUCCEEDED", view.message
    rate = view.value("rows_per_second")
    counted = ds.dataset(sorted(str(p) for p in Path(view.outputs[-1].path).glob("part-*")))
    assert counted.count_rows() == rows
    print(f"{rows:,} rows: {rate:,.0f} rows/s, {1e6 / rate:.1f} microseconds a row")
    print(f"{'rows done':>12} " + " ".join(f"{role:>10}" for role in TITLES) + "   MiB resident")
    busy = [(done, of) for done, of in seen if done and len(of) == len(TITLES)]
    for part in (0.1, 0.25, 0.5, 0.75, 0.95):
        if not busy:
            break
        done, of = min(busy, key=lambda one: abs(one[0] - part * rows))
        print(f"{done:>12,} " + " ".join(f"{of[role] / MIB:>10,.0f}" for role in TITLES))


if __name__ == "__main__":
    main()
