"""Preview and Check of data that no machine reads in seconds: 20 GB of lines, 1,000,000 rows.

Asks with the commands, and a running JupyterLab. Writes the files below `--folder` and deletes
them. Before each round the system forgets them, so that they come from the disk.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.data.ways import Cost, ways_in

BLOCK_BYTES = 64 << 20
SOURCES = {
    "one JSONL file": "rows.jsonl",
    "the same as plain text": "rows.txt",
    "a CSV file of a tenth": "rows.csv",
    "Parquet, one row group": "one.parquet",
    "Parquet, 20 row groups": "many.parquet",
    "a folder of 8 Parquet files": "parts",
}


def main() -> None:
    options = _options()
    with _folder(options.folder) as folder:
        began = time.monotonic()
        make(folder, gigabytes=options.gigabytes, rows=options.rows)
        print(f"written in {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
        print("| what | of | by the clock, median | the first | of processor | says |")
        print("|---|---|---|---|---|---|")
        chosen = {name: one for name, one in SOURCES.items() if options.only in name}
        with ways_in(folder) as ways:
            for name, source in chosen.items():
                ways.name(source)
                for what, ask in ways.all.items():
                    costs = [_measured(folder, ask) for _ in range(options.rounds + 1)]
                    _print(name, what, costs)


def make(folder: Path, *, gigabytes: float, rows: int) -> None:
    """Write the sources."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(5000)]
    texts = [
        (" ".join(chance.choices(words, k=12)), " ".join(chance.choices(words, k=40)))
        for _ in range(20_000)
    ]
    lines = [json.dumps({"prompt": q, "completion": a}) for q, a in texts]
    _repeat(folder / "rows.jsonl", "\n".join(lines), int(gigabytes * 1e9))
    os.link(folder / "rows.jsonl", folder / "rows.txt")
    _repeat(folder / "rows.csv", "\n".join(f'{q},"{a}"' for q, a in texts), int(gigabytes * 1e8))
    with (folder / "rows.csv").open("r+b") as file:
        file.write(b"prompt,completion\n")
    table = _table(texts, rows)
    pq.write_table(table, folder / "one.parquet", row_group_size=rows)
    pq.write_table(table, folder / "many.parquet", row_group_size=rows // 20)
    (folder / "parts").mkdir()
    for number in range(8):
        part = table.slice(number * rows // 8, rows // 8)
        pq.write_table(part, folder / "parts" / f"{number}.parquet", row_group_size=rows // 40)


def _repeat(path: Path, text: str, size: int) -> None:
    block = (text.encode() + b"\n") * (BLOCK_BYTES // len(text) + 1)
    with path.open("wb") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
            file.flush()
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _table(texts: list[tuple[str, str]], rows: int) -> pa.Table:
    repeated = texts * (rows // len(texts) + 1)
    prompts, answers = zip(*repeated[:rows], strict=True)
    return pa.table({"id": range(rows), "prompt": prompts, "completion": answers})


def _measured(folder: Path, ask: Callable[[], Cost]) -> Cost:
    _forget(folder)
    return ask()


def _forget(folder: Path) -> None:
    os.sync()  # What is not written yet cannot be forgotten.
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _print(name: str, what: str, costs: list[Cost]) -> None:
    first, *others = costs
    walls = sorted(cost.wall_s for cost in others)
    used = [cost.cpu_s for cost in others if cost.cpu_s is not None]
    cpu = f"{statistics.median(used):.2f} s" if used else "–"
    spread = f"{statistics.median(walls):.2f} s ({walls[0]:.2f} - {walls[-1]:.2f})"
    print(
        f"| {what} | {name} | {spread} | {first.wall_s:.2f} s | {cpu} | {first.said} |", flush=True
    )


@contextmanager
def _folder(below: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=below, prefix="llmops-preview-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="part of the names of the sources to look at")
    parser.add_argument("--folder", type=Path, help="on a disk with room for 25 GB")
    return parser.parse_args()


if __name__ == "__main__":
    main()
