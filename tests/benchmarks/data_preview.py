"""Preview and Check of data that no machine reads in seconds: 20 GB of lines, 1,000,000 rows.

Asks with the commands, and a running JupyterLab. Writes the files below `--folder` and deletes
them. Before each round the system forgets them, so that they come from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from llmops_kernel.store.paths import home
from tests.browser.lab import Lab

READS_S = 4.0
"""A user reads an answer for so long before the next question."""
CONFIG = "x.train.yaml"
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
    cpu_s: float | None
    """Of the command and the processes that it started; not known of a server's."""
    said: str


class Ways:
    """`lab` shows the folder in which the config is."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self._folder, self._lab = folder, lab
        self.all = {
            "llmops data": self._data,
            "llmops check": self._check,
            "Data tab": self._tab,
            "Check in Lab": self._lab_check,
        }

    def name(self, source: str) -> None:
        """Write the config of a source."""
        text = f"model: SmolLM2-135M-Instruct\ndata: {source}\n"
        (self._folder / CONFIG).write_text(text)

    def _data(self) -> Cost:
        cost, found = self._command("data", "--json")
        train = found["train"]
        said = f"{train['num_rows']:,} of {train['total_rows']:,} rows ({train['where']})"
        return Cost(cost.wall_s, cost.cpu_s, said)

    def _check(self) -> Cost:
        cost, found = self._command("check", "--json")
        return Cost(cost.wall_s, cost.cpu_s, found["files"][0]["checked"][0])

    def _tab(self) -> Cost:
        wall_s, found = self._asked("configs/data", {})
        facts = {fact["label"]: fact["text"] for fact in found["facts"]}
        return Cost(wall_s, None, facts["rows"])

    def _lab_check(self) -> Cost:
        wall_s, found = self._asked("configs/check", {"closely": True, "with_files": True})
        return Cost(wall_s, None, found["checked"][0])

    def _command(self, *words: str) -> tuple[Cost, Any]:
        llmops = str(Path(sys.executable).with_name("llmops"))
        began_s, used_s = time.monotonic(), _used_s()
        done = subprocess.run(
            [llmops, words[0], CONFIG, *words[1:]],
            cwd=self._folder,
            capture_output=True,
            check=True,
        )
        cost = Cost(time.monotonic() - began_s, _used_s() - used_s, "")
        return cost, json.loads(done.stdout)

    def _asked(self, route: str, more: dict[str, Any]) -> tuple[float, Any]:
        text = (self._folder / CONFIG).read_text()
        request = urllib.request.Request(
            f"{self._lab.url}/llmops/{route}",
            data=json.dumps({"path": CONFIG, "text": text, **more}).encode(),
            headers={"Authorization": f"token {self._lab.token}"},
        )
        time.sleep(READS_S)
        began_s = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        return time.monotonic() - began_s, found


@contextmanager
def ways_in(folder: Path) -> Iterator[Ways]:
    """Start a JupyterLab on the folder, without a browser, and stop it at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch), work=folder, home=home())
        try:
            lab.wait()
            yield Ways(folder, lab)
        finally:
            lab.stop()


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
