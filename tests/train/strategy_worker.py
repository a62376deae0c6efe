"""One of two workers of a training without Ray: `python -m tests.train.strategy_worker SPEC`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.storage import open_bucket
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.train.checkpoints.store import store_journal
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.loop import train


def main() -> None:
    spec = json.loads(sys.argv[1])
    rank, folder = int(os.environ["RANK"]), Path(spec["folder"])
    # A folder of its own makes a worker one of another node.
    is_alone = spec.get("apart", False)
    if is_alone:
        folder = folder / f"node-{rank}"
    dist.init_process_group("gloo")
    journal = None
    if rank == 0:
        journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
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


if __name__ == "__main__":
    main()
