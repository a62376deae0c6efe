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
from llmops_kernel.train import kv
from llmops_kernel.train.context import WorkerContext


def shares_run_folder(spec: RunSpec) -> bool:
    """True when this node sees the run's folder of the client: the record in it proves it."""
    try:
        record = json.loads(RunFolder(Path(spec.run_root)).record.read_text())
    except (OSError, ValueError):
        return False
    return bool(record.get("run_id") == spec.run_id)


def run_folder(spec: RunSpec) -> RunFolder:
    """The client's folder where it is shared, else one on this node."""
    if shares_run_folder(spec):
        return RunFolder(Path(spec.run_root))
    return RunFolder(Path(tempfile.gettempdir()) / "llmops-runs" / spec.run_id)


def ray_logs_folder() -> Path | None:
    """Ray's own log folder of this node: what lies there can be read through the dashboard."""
    import ray

    node = getattr(ray._private.worker, "_global_node", None)
    return Path(node.get_logs_dir_path()) if node is not None else None


def journal_folders(spec: RunSpec) -> list[Path]:
    """Where a stream is written: the shared run folder, and Ray's log folder."""
    folders = [RunFolder(Path(spec.run_root)).journal] if shares_run_folder(spec) else []
    logs = ray_logs_folder()
    if logs is not None:
        folders.append(logs / "llmops" / spec.run_id)
    return folders


def open_journal(spec: RunSpec, stream: str) -> JournalWriter:
    return JournalWriter(
        journal_folders(spec), stream=f"{spec.attempt}-{stream}", attempt=spec.attempt
    )


def worker_context(spec: RunSpec, *, use_gpu: bool) -> WorkerContext:
    """Built inside the worker process, after Ray Train has made the process group."""
    import ray
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
        workspace=Path.cwd(),
        fallback_workspaces=fallback,
        cache=shared_cache if shared_cache and shared_cache.is_dir() else None,
        journal=open_journal(spec, f"worker-{_group_number(spec)}") if rank == 0 else None,
        node_id=ray.get_runtime_context().get_node_id(),
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
