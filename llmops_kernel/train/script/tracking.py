"""Connects `llmops_kernel.track` to the run: journal, stop request, device and checkpoints."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.driver import journal_copies
from llmops_kernel.driver.folders import open_journal, ray_logs
from llmops_kernel.metrics.events import CheckpointEvent, Event, ProcessEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.track.model import FlopsOf
from llmops_kernel.track.session import BOARD_ENV_VAR
from llmops_kernel.track.stopping import KEPT, STOPPED, Board, FileBoard, Reader, StopAgreement
from llmops_kernel.track.tracker import Kept, Peak, Tracker
from llmops_kernel.train.checkpoints.agreement import ResumeAgreement
from llmops_kernel.train.script.copies import CheckpointCopies

CLUSTER_AGE_S = 0.5
"""How old a value of the cluster's store may be when a worker uses it."""


@dataclass(frozen=True)
class Rank:
    rank: int = 0
    world_size: int = 1


def open_tracker(encoded: str) -> Tracker:
    """Return the tracker of this process, for a script's first report."""
    spec = RunSpec.decode(encoded)
    rank = find_rank()
    return Tracker(ScriptWorker(spec, rank), clock=time.perf_counter)


def find_rank() -> Rank:
    """Return rank and number of workers: the process group's, Ray Train's, or torchrun's."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size())
    if "ray.train" in sys.modules and (found := _ray_train_rank()):
        return found
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return Rank(int(rank), int(size)) if rank.isdigit() and size.isdigit() else Rank()


def _ray_train_rank() -> Rank | None:
    try:
        context = sys.modules["ray.train"].get_context()
        return Rank(context.get_world_rank(), context.get_world_size())
    except Exception:  # Not inside a worker of Ray Train; what is raised varies.
        return None


class ClusterBoard:
    """Values in Ray's own key-value store, for a process that is connected to Ray."""

    def __init__(self, spec: RunSpec) -> None:
        from llmops_kernel.driver import kv_store

        self._kv, self._spec = kv_store, spec

    def _key(self, name: str) -> str:
        return self._kv.key(self._spec.run_id, self._spec.attempt, name)

    def get(self, name: str) -> Any:
        return self._kv.get(self._key(name))

    def put(self, name: str, value: Any) -> None:
        self._kv.put(self._key(name), value)


class ScriptWorker:
    """One process of a script: a worker of Ray, or a process below the driver."""

    def __init__(self, spec: RunSpec, rank: Rank) -> None:
        self.rank, self.world_size = rank.rank, rank.world_size
        self._spec = spec
        self._workspace = Path.cwd()
        self._copies = CheckpointCopies(spec, workspace=self._workspace)
        self._process = psutil.Process()
        self._journal: JournalWriter | None = None
        folder = os.environ.get(BOARD_ENV_VAR)
        self._board: Board = FileBoard(Path(folder)) if folder else ClusterBoard(spec)
        self._is_local = bool(folder)
        self._agreement: StopAgreement | None = None
        self._resume: ResumeAgreement | None = None

    def emit(self, event: Event) -> None:
        """Journal on rank 0. Other ranks have no stream."""
        if self.rank != 0:
            return
        if self._journal is None:
            name = f"worker-{self._group()}"
            self._journal = open_journal(self._spec, name, logs=ray_logs(self._workspace))
            if not self._is_local:
                self._report_process()
        self._journal.emit(event)

    def _group(self) -> int:
        """0 for a process below the driver; workers of Ray count on, each group of them."""
        if self._is_local:
            return 0
        number = int(self._board.get("worker-groups") or 0) + 1
        self._board.put("worker-groups", number)
        return number

    def _report_process(self) -> None:
        from llmops_kernel.warm.for_jobs import start_report

        warm, reason = start_report()
        assert self._journal is not None
        self._journal.emit(ProcessEvent(role="worker", rank=0, warm=warm, reason=reason))

    def should_stop(self) -> bool:
        if self._agreement is None:
            age_s = 0.0 if self._is_local else CLUSTER_AGE_S
            self._agreement = StopAgreement(
                self._board,
                rank=self.rank,
                world_size=self.world_size,
                reader=lambda name: Reader(self._board, name, max_age_s=age_s),
                max_age_s=age_s,
            )
        return self._agreement.ask()

    def asked_to_stop(self, step: int) -> None:
        self._board.put(STOPPED, {"step": step})

    def peak(self, dtype: str, device: str) -> Peak:
        """Return the device's peak; a CPU's is measured once per machine, before the first step.

        Not in the background: training at the same time would make it too low.
        """
        from llmops_kernel.train.measure.device import describe, device_name

        use_gpu = device == "cuda"
        try:
            found = describe(use_gpu=use_gpu, dtype=dtype, cache_root=self._cache())
            return Peak(found.name, found.peak_flops, found.peak_source)
        except Exception as error:  # An unusual dtype or device is no reason to fail.
            name = device_name(use_gpu=use_gpu) if device in ("cpu", "cuda") else device
            return Peak(name, None, f"unknown: {type(error).__name__}: {error}")

    def flops_of(self, model: Any) -> FlopsOf | None:
        from llmops_kernel.train.measure.script_flops import script_flops

        return script_flops(model, cache=self._cache())

    def _cache(self) -> Path | None:
        cache = Path(self._spec.cache_root) if self._spec.cache_root else None
        return cache if cache and cache.is_dir() else None

    def host_memory_bytes(self) -> int | None:
        return int(self._process.memory_info().rss)

    def start_facts(self) -> dict[str, Any]:
        from llmops_kernel.train.measure.versions import installed_versions

        return {"versions": installed_versions(), "hosts": (os.uname().nodename,)}

    def keep_checkpoint(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        kept = self._copies.keep(path, step=step, keep=keep)
        self._board.put(KEPT, {"step": step})
        if self._journal is not None:
            journal_copies.store(self._spec, self._journal.paths[:1])
        return kept

    def newest_checkpoint(self) -> Kept | None:
        return self._copies.newest()

    def agreed_checkpoint(self) -> Kept | None:
        group = "" if self._is_local or self.world_size == 1 else _group_of_workers()
        if not group:  # One worker, or all of them on one machine, with one view of its disk.
            return self._copies.newest()
        if self._resume is None:
            self._resume = ResumeAgreement(self._board, self._copies, rank=self.rank, group=group)
        return self._resume.newest()


def _group_of_workers() -> str:
    """Return what the workers that were started together have in common; empty if unknown.

    Our driver and Ray Train make a placement group for each start of their workers.
    """
    import ray

    return str(ray.get_runtime_context().get_placement_group_id() or "")
