"""Healthy runs, in which the radar must see nothing: `python -m tests.soak.radar --runs 20`.

Tiny trainings and scripts of one and two workers on a local cluster of its own, with evaluations,
generated answers, saves, a stop and a retry; `--load` processes compute beside them. Each warning
of a stall, of a slow worker, of a jump of the loss or of a GPU is a false alarm and is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.metrics.events import StallEvent
from llmops_kernel.providers.local.provider import LocalProvider
from tests.tiny_training import slow_hooks, write_training

SCRIPT = """
import random, time
import torch.distributed as dist
from llmops_kernel import track

dist.init_process_group("gloo")
steps = {steps}
track.start(total_steps=steps)
for step in range(1, steps + 1):
    time.sleep(random.uniform(0.01, 0.05))
    dist.barrier()
    track.step(loss=1.0 / step)
    if step % 20 == 0:
        time.sleep({pause_s})
        dist.barrier()
        track.evaluation({{"eval_loss": 1.0 / step}})
"""
_ALARMS = ("No step for", "is slower than the other", "The loss jumps", "is still held by")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=int, default=0, help="processes that compute beside them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-r-") as folder, _loaded(arguments.load):
        os.environ["LLMOPS_HOME"] = f"{folder}/home"
        provider = LocalProvider()
        info = provider.up(ClusterTemplate(name="radar"), progress=print)
        try:
            return _soak(llmops.cluster(info.name), Path(folder), arguments)
        finally:
            provider.down(info.name)


def _soak(cluster: llmops.Cluster, folder: Path, arguments: argparse.Namespace) -> int:
    choose = random.Random(arguments.seed)
    began_s, num_steps, alarms, failed = time.monotonic(), 0, 0, 0
    for number in range(arguments.runs):
        workspace = folder / f"ws-{number}"
        is_script = number % 4 == 3
        run = (_script if is_script else _training)(cluster, workspace, choose)
        retries = not is_script and choose.random() < 0.3
        if retries:
            _stop_after(run, choose.randint(3, 10))
            run.retry()
        state = run.wait(600, raise_on_failure=False)
        steps = len(run.view.rows)
        num_steps += steps
        seen = [w.message for w in run.view.warnings if any(a in w.message for a in _ALARMS)]
        stalls = [event for event in run.events() if isinstance(event, StallEvent)]
        alarms += bool(seen or stalls)
        failed += state != "SUCCEEDED"
        retried = ", stopped and retried" if retries else ""
        print(f"{number + 1}: {run.id} {state}, {steps} steps{retried}", flush=True)
        for message in seen:
            print(f"    false alarm: {message}", flush=True)
    minutes = (time.monotonic() - began_s) / 60
    print(
        f"{arguments.runs} runs, {num_steps:,} steps, {minutes:.1f} minutes, seed"
        f" {arguments.seed}, load {arguments.load}: {alarms} with a false alarm, {failed} failed"
    )
    return int(bool(alarms or failed))


def _training(cluster: llmops.Cluster, workspace: Path, choose: random.Random) -> llmops.Run:
    workers = choose.choice((1, 2))
    config = write_training(
        workspace,
        "radar",
        hooks=slow_hooks(choose.choice((0.0, 0.05, 0.2))),
        rows=96,
        parallelism={"num_workers": workers},
        data={"eval": "rows.jsonl", "max_eval_rows": 16},
        evaluation={"every_steps": choose.choice((5, 9)), "prompts": ["number 3"]},
        training={"global_batch_size": 2 * workers, "max_steps": choose.randint(20, 60)},
        checkpoint={"every_steps": choose.choice((4, 7))},
    )
    return cluster.submit(config)


def _script(cluster: llmops.Cluster, workspace: Path, choose: random.Random) -> llmops.Run:
    workspace.mkdir()
    path = workspace / "train.py"
    path.write_text(SCRIPT.format(steps=choose.randint(40, 120), pause_s=choose.choice((0.0, 3.0))))
    return cluster.submit(path, num_workers=2)


def _stop_after(run: llmops.Run, step: int) -> None:
    while not run.has_ended and (run.view.last_step or 0) < step:
        time.sleep(0.1)
    run.stop()
    run.wait(300, raise_on_failure=False)


@contextmanager
def _loaded(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
