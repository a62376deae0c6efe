"""The worker loop's context under Ray Train, and the folders that driver and workers share."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from llmops_kernel.runs.assets import link_assets
from llmops_kernel.runs.journal import JournalWriter
from llmops_kernel.runs.paths import RunFolder
from llmops_kernel.runs.spec import RunSpec
from llmops_kernel.train import checkpoint, kv
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.storage import open_bucket, run_storage, storage_folder


def shares_run_folder(spec: RunSpec) -> bool:
    """True when this node sees the run's folder of the client: the record in it proves it."""
    try:
        record = json.loads(RunFolder(Path(spec.run_root)).record.read_text())
    except (OSError, ValueError):
        return False
    return bool(record.get("run_id") == spec.run_id)


def run_folder(spec: RunSpec) -> RunFolder:
    """What the cluster's template says, else the client's folder where it is shared, else one
    on this node.
    """
    shared = storage_folder(spec.run_id)
    if shared is not None:
        return RunFolder(shared)
    own = Path(tempfile.gettempdir()) / "llmops-runs"
    if run_storage() is not None:
        # Of each node its own, also of two that are pods on one host: a bucket joins them.
        return RunFolder(own / f"{spec.run_id}-{_node_id()[:8]}")
    return RunFolder(Path(spec.run_root) if shares_run_folder(spec) else own / spec.run_id)


def newest_step(spec: RunSpec) -> int:
    """Of the checkpoint that the next worker group resumes from; 0 is the beginning."""
    bucket = open_bucket(spec.run_id)
    if bucket is not None:
        stored = bucket.newest()
        return stored.step if stored else 0
    found = checkpoint.latest(run_folder(spec).checkpoints)
    return found.step if found else 0


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def ray_logs_folder() -> Path | None:
    """Ray's own log folder of this node: what lies there can be read through the dashboard."""
    import ray

    node = getattr(ray._private.worker, "_global_node", None)
    return Path(node.get_logs_dir_path()) if node is not None else None


def journal_folders(spec: RunSpec) -> list[Path]:
    """Where a stream is written: in what is shared, and in Ray's log folder."""
    folders = [RunFolder(Path(spec.run_root)).journal] if shares_run_folder(spec) else []
    stored = storage_folder(spec.run_id)
    if stored is not None:
        folders.append(RunFolder(stored).journal)
    visible = visible_journal(spec)
    return folders if visible is None else [*folders, visible]


def visible_journal(spec: RunSpec) -> Path | None:
    """The folder on this node whose files can be read through the dashboard."""
    logs = ray_logs_folder()
    return None if logs is None else logs / "llmops" / spec.run_id


def open_journal(spec: RunSpec, stream: str) -> JournalWriter:
    return JournalWriter(
        journal_folders(spec), stream=f"{spec.attempt}-{stream}", attempt=spec.attempt
    )


def worker_context(spec: RunSpec, *, use_gpu: bool) -> WorkerContext:
    """Built inside the worker process, after Ray Train has made the process group."""
    import ray.train

    link_assets(Path.cwd())  # Data as it was at the submission comes before the client's folder.
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
        workspace=Path.cwd(),
        fallback_workspaces=fallback,
        cache=shared_cache if shared_cache and shared_cache.is_dir() else None,
        journal=open_journal(spec, f"worker-{_group_number(spec)}") if rank == 0 else None,
        node_id=_node_id(),
        host=os.uname().nodename,
        stop_requested=stop.is_set if stop else lambda: False,
    )


def _group_number(spec: RunSpec) -> int:
    """1 for the attempt's first worker group, 2 for the next ...: each has its own stream.

    Counted in Ray's store, for the next group's rank 0 may be on another node.
    """
    name = kv.key(spec.run_id, spec.attempt, "worker-groups")
    number = int(kv.get(name) or 0) + 1
    kv.put(name, number)
    return number
