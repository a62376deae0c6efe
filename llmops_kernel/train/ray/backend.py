"""Makes the process group of a run; workers of one node meet in a file, not at an open port.

torch's TCPStore listens on every address of the machine, asks nobody who they are, and what is
read from it is unpickled. Ray's own set-up always uses one. A file in a private folder of the node
does the same for workers of one node, and a single worker needs nobody to meet. Workers on several
nodes still use Ray's set-up, on the network of the nodes or pods.

Import this only where `compat.missing()` is empty.
"""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from typing import Any

import ray
from ray.train.torch import TorchConfig

from llmops_kernel.driver import compat
from llmops_kernel.hardware import loopback

TorchBackend: Any = compat.get("TorchBackend")
_TORCHS_PORT = "29500"


class RunTorchConfig(TorchConfig):
    """TorchConfig with our backend."""

    @property
    def backend_cls(self) -> Any:
        return RunBackend


class RunBackend(TorchBackend):
    """Ray Train's torch backend, without a TCPStore where all workers are on one node."""

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Make the process group on all workers."""
        workers = worker_group.get_workers()
        if len({worker.metadata.node_id for worker in workers}) > 1:
            super().on_start(worker_group, backend_config)
            return
        folder = worker_group.execute_single(0, new_folder) if len(workers) > 1 else None
        backend = backend_config.backend or _backend(worker_group.get_resources_per_worker())
        joins = [
            worker_group.execute_single_async(
                rank,
                join,
                backend=backend,
                world_rank=rank,
                world_size=len(workers),
                folder=folder,
                timeout_s=backend_config.timeout_s,
            )
            for rank in range(len(workers))
        ]
        ray.get(joins)


def _backend(resources: dict[str, float]) -> str:
    return "nccl" if resources.get("GPU", 0) > 0 else "gloo"


def new_folder() -> str:
    """Create a folder that only this user can open; it is removed with Ray's session."""
    logs = compat.ray_logs()
    return tempfile.mkdtemp(prefix="llmops-group-", dir=logs.parent if logs else None)


def join(
    *, backend: str, world_rank: int, world_size: int, folder: str | None, timeout_s: float
) -> None:
    """Join the process group in this worker process; `folder` is None for a single worker."""
    import torch.distributed as dist

    compat.get("set_torch_env_vars")()
    for name, value in loopback.settings().items():
        os.environ.setdefault(name, value)
    # Accelerate and DeepSpeed look for both, and use neither where a group exists.
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = loopback.ADDRESS, _TORCHS_PORT
    if backend == "nccl" and "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
        # As Ray does: an operation that times out fails instead of waiting forever.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    # Of torch's stores those two open no port.
    store = dist.FileStore(f"{folder}/store", world_size) if folder else dist.HashStore()
    dist.init_process_group(
        backend=backend,
        store=store,
        rank=world_rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
