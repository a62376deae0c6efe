"""One rank of a group that resumes: `python -m tests.train.checkpoints.resume_worker FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

from llmops_kernel.errors import StoreError
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.context import WorkerContext


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    context = WorkerContext(
        run_id="resume", rank=rank, world_size=size, folder=folder, workspace=folder
    )
    try:
        path = resume_path(context, view_s=float(sys.argv[2]))
        answer = {"path": path.name if path else None}
    except StoreError as error:
        answer = {"error": error.message}
    print(json.dumps(answer), flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
