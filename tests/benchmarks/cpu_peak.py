r"""The measured peak of a CPU, quiet and beside 8 busy processes, and the MFU of runs under load.

    python -m tests.benchmarks.cpu_peak --measurements 10
    python -m tests.benchmarks.cpu_peak --measurements 0 --runs 50 --minutes 8 --keep
    python -m tests.benchmarks.cpu_peak --measurements 0 --runs 50 --model SmolLM2-135M-Instruct \
        --niceness 15

Each measurement is made by a process of its own, with the products that a run uses: quiet and
without a kept peak, under load without one, and under load with the peak that one quiet run has
kept. Then runs follow on one local cluster: a quiet one, and the others under load. Start it on a
quiet machine. With `--keep` the cluster stays for the next call.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import cast

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.journal.training_view import TrainingView

BUSY = 8
_MEASURE = """
import sys
from pathlib import Path
from llmops_kernel.train.measure.device import *
use_cpu_threads(1)
for folder in map(Path, sys.argv[1:]):
    peak = measured_cpu_peak(cpu_name(), "float32", folder)[0]
    raise_cpu_peak("float32", folder)
    print(peak or 0, measured_cpu_peak(cpu_name(), "float32", folder)[0] or 0)
"""
_CONFIG = """\
model: {model}
data: {{train: train.jsonl, max_length: 96}}
method: lora
training: {{micro_batch_size: 2, global_batch_size: 4, max_steps: 4}}
evaluation: {{at_start: false, at_end: false}}
"""


def _spin(niceness: int) -> None:
    os.nice(niceness)
    while True:
        pass


@contextmanager
def busy(processes: int = BUSY, *, niceness: int = 0) -> Iterator[None]:
    """Keep the processors busy inside the block."""
    workers = [
        multiprocessing.Process(target=_spin, args=(niceness,), daemon=True)
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def measure(*kept: Path) -> list[list[float]]:
    """Return the peaks in GFLOPS of a run in a fresh process: the one it uses, the one it keeps.

    First without a kept peak, then with those of each folder. 0: it saw a busy machine, and none
    was kept.
    """
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-c", _MEASURE, empty, *map(str, kept)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()[-1 - len(kept) :]
    return [[float(word) / 1e9 for word in line.split()] for line in lines]


def compare_peaks(times: int) -> None:
    """Measure quiet and under load, and print both with their ratio."""
    quiet = [measure()[0][0] for _ in range(times)]
    report("quiet, nothing kept", quiet, quiet)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("kept by one quiet run", measure(folder)[1][1:], quiet)
        with busy():
            loaded = [measure(folder) for _ in range(times)]
    what = f"beside {BUSY} busy processes"
    report(f"{what}, nothing kept", [fresh[0] for fresh, _ in loaded], quiet)
    report(f"{what}, after the quiet run", [one for _, kept in loaded for one in kept], quiet)


def report(what: str, values: list[float], quiet: list[float]) -> None:
    known, base = [value for value in values if value], [value for value in quiet if value]
    text = "-"
    if known and base:
        least, middle, most = min(known), median(known), max(known)
        text = f"{least:.1f} / {middle:.1f} / {most:.1f} GFLOPS (least / median / most)"
        text += f", {least / median(base):.2f} to {most / median(base):.2f} of the quiet median"
    print(f"{what}: {text}; {len(values) - len(known)} of {len(values)} not believed", flush=True)


@dataclass(frozen=True)
class Shown:
    """What the screens show of one run."""

    mfu: float | None
    steps: list[float | None]
    took_s: float

    @property
    def numbers(self) -> list[float]:
        return [one for one in (self.mfu, *self.steps) if one is not None]


def run_one(cluster: llmops.Cluster, config: Path) -> Shown:
    begin_s = time.monotonic()
    run = cluster.submit(config)
    run.wait(600)
    steps = [float(one) for one in run.metrics()["mfu"]]
    known = [None if math.isnan(one) else one for one in steps]
    view = cast("TrainingView", run.view)
    return Shown(view.mfu, known, time.monotonic() - begin_s)


def run_under_load(cluster: llmops.Cluster, options: argparse.Namespace) -> None:
    """Print the MFU of a quiet run and of up to `runs` runs under load."""
    shown: list[Shown] = []
    with tempfile.TemporaryDirectory() as name:
        config = workspace(Path(name), options.model)
        print(line("quiet", run_one(cluster, config)), flush=True)
        deadline_s = time.monotonic() + 60 * options.minutes
        with busy(niceness=options.niceness):
            while len(shown) < options.runs and time.monotonic() < deadline_s:
                shown.append(run_one(cluster, config))
                print(line(str(len(shown)), shown[-1]), flush=True)
    numbers = [number for one in shown for number in one.numbers]
    num_steps = sum(len(one.steps) for one in shown)
    impossible = sum(not 0 < number <= 1 for number in numbers)
    print(
        f"{options.model}, {len(shown)} runs of {num_steps} steps beside {BUSY} busy processes: MFU"
        f" {min(numbers, default=0):.3%} to {max(numbers, default=0):.3%};"
        f" {sum(one.mfu is None for one in shown)} runs and"
        f" {sum(step is None for one in shown for step in one.steps)} steps with a dash;"
        f" {impossible} numbers outside of 0 to 100 %"
    )


def workspace(folder: Path, model: str) -> Path:
    rows = (f'{{"prompt": "what is {n}?", "completion": "it is {n}."}}\n' for n in range(32))
    (folder / "train.jsonl").write_text("".join(rows))
    config = folder / "peak.train.yaml"
    config.write_text(_CONFIG.format(model=model))
    return config


def line(what: str, shown: Shown) -> str:
    words = ["-" if one is None else f"{one:.3%}" for one in (shown.mfu, *shown.steps)]
    return f"{what}: MFU {words[0]} (steps {', '.join(words[1:])}), {shown.took_s:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--measurements", type=int, default=10)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="starts no run after them")
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument(
        "--niceness",
        type=int,
        default=0,
        help="of the busy processes beside runs; Ray's workers have 15",
    )
    parser.add_argument("--cluster", default="cpu-peak")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    options = parser.parse_args()
    if options.measurements:
        compare_peaks(options.measurements)
    if options.runs:
        template = ClusterTemplate(name=options.cluster)
        cluster = llmops.cluster(LocalProvider().up(template).name)
        try:
            run_under_load(cluster, options)
        finally:
            if not options.keep:
                cluster.down()


if __name__ == "__main__":
    main()
