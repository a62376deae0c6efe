"""The measured peak of a CPU, quiet and beside 8 busy processes, and the MFU of runs under load.

    python -m tests.benchmarks.cpu_peak --measurements 10 --runs 50

Each measurement is made by a process of its own without a kept peak. Then runs of the tiny model
follow under load, with the peak that the quiet measurements left. Start it on a quiet machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.loop import train

_MEASURE = """
import sys
from pathlib import Path
from llmops_kernel.train.measure.device import measured_cpu_peak, use_cpu_threads
use_cpu_threads(1)
print(measured_cpu_peak("cpu", "float32", Path(sys.argv[1]))[0] or 0)
"""


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the processors busy inside the block."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def measure(times: int) -> list[float]:
    """Return the peaks in GFLOPS that fresh processes measured; 0 where one saw a busy machine."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", _MEASURE, folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(float(done.stdout.split()[-1]) / 1e9)
    return found


def run(model: str, folder: Path, cache: Path, *, steps: int) -> TrainingView:
    """Train for some steps; return what the screens show of it."""
    rows = "".join(f'{{"prompt": "what is {n}?", "completion": "it is {n}."}}\n' for n in range(32))
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text(rows)
    config = TrainingConfig.model_validate(
        {
            "model": model,
            "data": {"train": "train.jsonl"},
            "training": {"micro_batch_size": 2, "global_batch_size": 4, "max_steps": steps},
        }
    )
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    tail = FolderTail(folder / "journal")
    context = WorkerContext(
        run_id="peak", folder=folder / "out", workspace=folder, journal=journal, cache=cache
    )
    train(config, context)
    journal.close()
    return TrainingView(tail.read())


def report(what: str, values: list[float]) -> None:
    known = [value for value in values if value]
    text = f"{median(known):.1f} ({min(known):.1f} - {max(known):.1f})" if known else "-"
    print(f"{what}: {text} GFLOPS, {len(values) - len(known)} of {len(values)} not believed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--measurements", type=int, default=10)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--model", default="tiny-llama")
    options = parser.parse_args()
    report("quiet", measure(options.measurements))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(options.model, folder / "quiet", folder / "cache", steps=4)
        shown: list[float | None] = []
        with busy(8):
            report("8 busy processes", measure(options.measurements))
            for number in range(options.runs):
                view = run(options.model, folder / str(number), folder / "cache", steps=4)
                steps = [event for event in view.steps if isinstance(event, StepEvent)]
                shown += [view.mfu, *(event.mfu for event in steps)]
    known = [value for value in shown if value is not None]
    impossible = [value for value in known if not 0 < value <= 1]
    print(
        f"MFU of {options.runs} runs under load: {len(known)} numbers of {len(shown)},"
        f" {min(known, default=0):.2%} - {max(known, default=0):.2%},"
        f" {len(impossible)} outside of 0 to 100 %"
    )


if __name__ == "__main__":
    main()
