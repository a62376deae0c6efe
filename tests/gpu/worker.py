"""One GPU worker of a training without Ray: `torchrun -m tests.gpu.worker SPEC`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.loop import train


def main() -> None:
    spec = json.loads(sys.argv[1])
    folder, rank = Path(spec["folder"]), int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    journal = None
    if rank == 0:
        journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    context = WorkerContext(
        run_id="gpu",
        rank=rank,
        world_size=dist.get_world_size(),
        local_rank=rank,
        local_world_size=dist.get_world_size(),
        use_gpu=True,
        folder=folder,
        workspace=Path(spec["workspace"]),
        journal=journal,
        **spec.get("context", {}),
    )
    train(TrainingConfig.model_validate(spec["config"]), context)
    if journal is not None:
        journal.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
