"""One script, submitted in turn to a warm local cluster and to a stock Ray cluster.

    python -m tests.benchmarks.script_loop notebooks/scripts/lightning_train.py -- --steps 3

Ours: `cluster.submit` on a cluster that `llmops up` started. Stock: `ray job submit` on a head that
`ray start --head` started, in the same minutes. Prints the seconds from the submit to the script's
first `track.step`: ours from the journal; the stock one from a wrapper that runs the script with a
`track.step` which writes down the time, so it fits scripts whose steps are made in their own
process. For others, such as a script that uses Ray Train, `--to end` takes the seconds from the
submit until the client knows of the end. With `--workers 2` the stock side runs `torchrun`. Needs
a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import llmops_kernel as llmops

WRAPPER = """\
import runpy, sys, time
from pathlib import Path
from llmops_kernel import track

def first_step(**_):
    file = Path({file!r})
    if not file.exists():
        file.write_text(str(time.time()))

track.step = first_step
track.active = lambda: True
sys.argv = [{script!r}, *{args!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


class StockCluster:
    """A Ray head as its documentation starts it, with ports and folders of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ray = str(Path(sys.executable).with_name("ray"))
        self._env = {**os.environ, "RAY_AUTH_MODE": "disabled"}

    def __enter__(self) -> StockCluster:
        words = ["start", "--head", "--port=6390", "--dashboard-port=8290", "--num-cpus=2"]
        self._run(*words, "--dashboard-host=127.0.0.1", f"--temp-dir={self._folder / 'ray'}")
        return self

    def __exit__(self, *_: object) -> None:
        ours = [process for process in psutil.process_iter() if self._is_ours(process)]
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(ours, timeout=5)
        for process in alive:
            process.kill()

    def _is_ours(self, process: psutil.Process) -> bool:
        """Return whether its command names this cluster's own folder."""
        with contextlib.suppress(psutil.Error):
            return any(str(self._folder / "ray") in word for word in process.cmdline())
        return False

    def _run(self, *words: str) -> None:
        subprocess.run([self._ray, *words], check=True, env=self._env, capture_output=True)

    def seconds(self, script: Path, options: argparse.Namespace) -> float:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            workspace, file = Path(name), self._folder / f"first-{time.time_ns()}"
            shutil.copy(script, workspace / script.name)
            text = WRAPPER.format(file=str(file), script=script.name, args=options.args)
            (workspace / "wrapper.py").write_text(text)
            run = [sys.executable]
            if options.workers:
                run += ["-m", "torch.distributed.run", f"--nproc-per-node={options.workers}"]
            begin_s = time.time()
            self._run(
                *("job", "submit", "--address", "http://127.0.0.1:8290"),
                *("--working-dir", name, "--", *run, "wrapper.py"),
            )
            end_s = time.time() if options.to == "end" else float(file.read_text())
            return end_s - begin_s


def ours_s(cluster: llmops.Cluster, script: Path, options: argparse.Namespace) -> float:
    begin_s = time.time()
    workers = {"num_workers": options.workers} if options.workers else {}
    run = cluster.submit(script, args=options.args, **workers)
    run.wait()
    if options.to == "end":
        return time.time() - begin_s
    seconds = run.view.submit_to_first_step_s
    assert seconds is not None, run.logs()
    return float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--to", choices=("first-step", "end"), default="first-step")
    parser.add_argument("args", nargs="*")
    options = parser.parse_args()
    cluster = llmops.up("local")
    warm, stock = [], []
    with tempfile.TemporaryDirectory(prefix="stock-") as name, StockCluster(Path(name)) as ray:
        ours_s(cluster, options.script, options)  # The first one uploads packages.
        for number in range(options.rounds):
            warm.append(ours_s(cluster, options.script, options))
            stock.append(ray.seconds(options.script, options))
            print(f"{number + 1}: ours {warm[-1]:.1f} s, stock {stock[-1]:.1f} s", flush=True)
    ours, theirs = statistics.median(warm), statistics.median(stock)
    print(f"median: ours {ours:.1f} s, stock {theirs:.1f} s, ratio {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
