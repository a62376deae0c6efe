"""The worker loop's context under Ray Train, and the folders that driver and workers share."""

from __future__ import annotations

import os
from pathlib import Path

from llmops_kernel.driver import checkpoint, compat, storage
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.storage import folder_on_node, open_bucket, storage_folder
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunSpec
from llmops_kernel.store.run_lines import RunLines
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.warm.for_jobs import model_cache_bytes


def run_folder(spec: RunSpec) -> RunFolder:
    """Return the run's folder as this node sees it."""
    return folder_on_node(spec, node=lambda: _node_id()[:8])


def newest_step(spec: RunSpec) -> int:
    """Return the step of the checkpoint that the next worker group resumes from; 0: none."""
    bucket = open_bucket(spec.run_id)
    if bucket is not None:
        stored = bucket.newest()
        return stored.step if stored else 0
    newest = checkpoint.latest(run_folder(spec).checkpoints)
    return newest.step if newest else 0


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def open_journal(spec: RunSpec, stream: str) -> JournalWriter:
    """Open a stream of this attempt's journal for writing."""
    return storage.open_journal(spec, stream, logs=compat.ray_logs())


def worker_context(spec: RunSpec, *, use_gpu: bool) -> WorkerContext:
    """Return the context of this worker process; call it once the process group exists."""
    import ray.train

    link_assets(Path.cwd())  # Data as submitted comes before the client's folder.
    train = ray.train.get_context()
    rank = train.get_world_rank()
    stop = kv.Flag(kv.key(spec.run_id, spec.attempt, "stop")) if rank == 0 else None
    fallback = (Path(spec.workspace_root),) if spec.workspace_root else ()
    shared_cache = Path(spec.cache_root) if spec.cache_root else None
    return WorkerContext(
        run_id=spec.run_id,
        rank=rank,
        world_size=train.get_world_size(),
        local_rank=train.get_local_rank(),
        local_world_size=train.get_local_world_size(),
        use_gpu=use_gpu,
        folder=run_folder(spec).root,
        bucket=open_bucket(spec.run_id),
        visible=storage.offers_to_clients(spec, logs=compat.ray_logs()),
        is_kept=storage_folder(spec.run_id) is not None,
        workspace=Path.cwd(),
        fallback_workspaces=fallback,
        cache=shared_cache if shared_cache and shared_cache.is_dir() else None,
        journal=open_journal(spec, f"worker-{_group_number(spec)}") if rank == 0 else None,
        say=RunLines().take,
        user=spec.user,
        keep_bytes=model_cache_bytes(),
        node_id=_node_id(),
        host=os.uname().nodename,
        stop_requested=stop.is_set if stop else lambda: False,
    )


def _group_number(spec: RunSpec) -> int:
    """Return 1 for the attempt's first worker group, 2 for the next: each has its own stream.

    Counted in Ray's key-value store, because rank 0 may move to another node.
    """
    name = kv.key(spec.run_id, spec.attempt, "worker-groups")
    number = int(kv.get(name) or 0) + 1
    kv.put(name, number)
    return number
