"""Preview and Check of data that no machine reads in seconds: 20 GB of lines, 1,000,000 rows.

Writes the files below `--folder` and deletes them. Before each round the system forgets them, so
that they come from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from llmops_kernel.cli.config_check import check_all
from llmops_kernel.services.data.preview import job_of, preview
from llmops_kernel.views.data_preview.facts import of_rows

BLOCK_BYTES = 64 << 20
SOURCES = {
    "one JSONL file": "rows.jsonl",
    "the same as plain text": "rows.txt",
    "a CSV file of a tenth": "rows.csv",
    "Parquet, one row group": "one.parquet",
    "Parquet, 20 row groups": "many.parquet",
    "a folder of 8 Parquet files": "parts",
}


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float
    """Of this process and of the one that looks."""
    said: str


def main() -> None:
    options = _options()
    with _folder(options.folder) as folder:
        began = time.monotonic()
        make(folder, gigabytes=options.gigabytes, rows=options.rows)
        print(f"written in {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
        print("| what | of | by the clock, median | of processor | says |\n|---|---|---|---|---|")
        chosen = {name: one for name, one in SOURCES.items() if options.only in name}
        for name, source in chosen.items():
            for what, work in (("preview", _preview), ("Check", _check)):
                costs = [_measured(folder, source, work) for _ in range(options.rounds)]
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


def _preview(folder: Path, source: str) -> str:
    found = preview(job_of(_config(folder, source)))
    return f"{of_rows(found.train)} ({found.train.where})"


def _check(folder: Path, source: str) -> str:
    (found,) = check_all([_config(folder, source)], [], workspace=None)
    return found.checked[0] if found.checked else str(found.problems)


def _config(folder: Path, source: str) -> Path:
    path = folder / "x.train.yaml"
    path.write_text(f"model: SmolLM2-135M-Instruct\ndata: {source}\n")
    return path


def _measured(folder: Path, source: str, work: Callable[[Path, str], str]) -> Cost:
    _forget(folder)
    wall, cpu = time.monotonic(), _used_s()
    said = work(folder, source)
    return Cost(time.monotonic() - wall, _used_s() - cpu, said)


def _used_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _forget(folder: Path) -> None:
    os.sync()  # What is not written yet cannot be forgotten.
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _print(name: str, what: str, costs: list[Cost]) -> None:
    walls = sorted(cost.wall_s for cost in costs)
    cpu = statistics.median(cost.cpu_s for cost in costs)
    spread = f"{statistics.median(walls):.2f} s ({walls[0]:.2f} - {walls[-1]:.2f})"
    print(f"| {what} | {name} | {spread} | {cpu:.2f} s | {costs[0].said} |", flush=True)


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
