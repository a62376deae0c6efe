"""Two workers of a training without Ray, or one of them.

`python -m tests.train.strategy_worker SPEC` is one worker. Without a SPEC it is the process that
pairs are forked from, as workers of a warm cluster are: to load torch and DeepSpeed takes longer
than most of these trainings.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch.distributed as dist

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.storage import open_bucket
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.train.checkpoints.store import store_journal
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.loop import train
from llmops_kernel.warm.preload import DEFAULT_MODULES, preload


def work(spec: dict[str, Any]) -> None:
    """Train and leave the process."""
    rank, folder = int(os.environ["RANK"]), Path(spec["folder"])
    # A folder of its own makes a worker one of another node.
    is_alone = spec.get("apart", False)
    if is_alone:
        folder = folder / f"node-{rank}"
    dist.init_process_group("gloo")
    journal = None
    if rank == 0:
        attempt = spec.get("attempt", 1)
        stream = f"{attempt}-worker-1"
        journal = JournalWriter([folder / "journal"], stream=stream, attempt=attempt)
    context = WorkerContext(
        run_id="strategies",
        rank=rank,
        world_size=2,
        local_rank=0 if is_alone else rank,
        local_world_size=1 if is_alone else 2,
        bucket=open_bucket("strategies"),
        folder=folder,
        workspace=Path(spec["workspace"]),
        journal=journal,
    )
    train(TrainingConfig.model_validate(spec["config"]), context)
    store_journal(context)
    dist.destroy_process_group()
    # As Ray ends its workers: the threads that Gloo still has may abort the interpreter's end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve() -> None:
    """Train each job that is read in two processes, and print their exit codes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print to standard output as well.
    loaded = preload([name for name in DEFAULT_MODULES if name.partition(".")[0] != "ray"])
    assert not loaded["problem"], loaded["problem"]
    for line in sys.stdin:
        job = json.loads(line)
        pids = [_fork(job, rank) for rank in range(2)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), file=answers, flush=True)


def _fork(job: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update(job["env"], RANK=str(rank), LOCAL_RANK=str(rank))
        log = os.open(f"{job['spec']['folder']}/{rank}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work(job["spec"])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(json.loads(sys.argv[1]))
    else:
        serve()
