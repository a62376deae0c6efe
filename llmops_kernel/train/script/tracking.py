"""Connects `llmops_kernel.track` to the run: journal, stop request, device and checkpoints."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.driver import checkpoint, report
from llmops_kernel.driver.beats import FIRST_STEP, BeatWriter, open_beat
from llmops_kernel.driver.checkpoint import HashesLater, hashed_while
from llmops_kernel.driver.storage import (
    Bucket,
    Stored,
    offers_to_clients,
    open_bucket,
    open_journal,
    ray_logs,
    run_folder,
)
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent, Event, InputsEvent, ProcessEvent
from llmops_kernel.metrics.inputs import RunInputs
from llmops_kernel.metrics.profile import PHASE
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.model import FlopsOf
from llmops_kernel.track.session import BOARD_ENV_VAR
from llmops_kernel.track.stopping import KEPT, STOPPED, Board, BoardReader, FileBoard, StopAgreement
from llmops_kernel.track.tracker import Peak, StoredCheckpoint, Tracker
from llmops_kernel.train.checkpoints import agreement
from llmops_kernel.train.checkpoints.agreement import (
    CheckpointChoice,
    ResumeAgreement,
    fetch,
    not_fetched,
)
from llmops_kernel.train.script.profiling import ScriptProfiles

CLUSTER_AGE_S = 0.5
"""Greatest age of a value of the cluster's store when a worker uses it."""


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
    if "ray.train" in sys.modules and (ray_rank := _ray_train_rank()):
        return ray_rank
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
    """A process of a script: a worker of Ray, or a process below the driver."""

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
        self._beat: BeatWriter | None = None
        self._has_beat = False
        self._profiles: ScriptProfiles | None = None

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
        """Return 0 for a process below the driver; workers of Ray count on, each group of them."""
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
                reader=lambda name: BoardReader(self._board, name, max_age_s=age_s),
                max_age_s=age_s,
            )
        return self._agreement.ask()

    def note_stop_request(self, step: int) -> None:
        self._board.put(STOPPED, {"step": step})

    def peak(self, dtype: str, device: str) -> Peak:
        """Return the device's peak; a CPU's is measured once per machine, before the first step.

        Not in the background: training at the same time would make it too low.
        """
        from llmops_kernel.train.measure.device import describe, device_name

        use_gpu = device == "cuda"
        try:
            description = describe(use_gpu=use_gpu, dtype=dtype, cache_root=self._cache())
            return Peak(description.name, description.peak_flops, description.peak_source)
        except Exception as error:  # An unusual dtype or device is no reason to fail.
            name = device_name(use_gpu=use_gpu) if device in ("cpu", "cuda") else device
            return Peak(name, None, f"unknown: {type(error).__name__}: {error}")

    def flops_of(self, model: Any) -> FlopsOf | None:
        from llmops_kernel.train.measure.step_flops import script_flops

        return script_flops(model, cache=self._cache())

    def _cache(self) -> Path | None:
        cache = Path(self._spec.cache_root) if self._spec.cache_root else None
        return cache if cache and cache.is_dir() else None

    def host_memory_bytes(self) -> int | None:
        return int(self._process.memory_info().rss)

    def beat(self, step: int, *, time_s: float | None, data_s: float | None, is_last: bool) -> None:
        if not self._has_beat:
            self._has_beat = True
            self._beat = open_beat(self._spec, rank=self.rank, world_size=self.world_size)
            if self.rank == 0 and not self._is_local:
                self._board.put(FIRST_STEP, True)
        if self._beat is not None:
            self._beat.step(step, time_s=time_s, data_s=data_s)
            if is_last:  # What follows is no step, and may take long.
                self._beat.phase("end")

    @property
    def is_profiled(self) -> bool:
        return self._profiles is not None and self._profiles.is_on

    def end_step(self, step: int, *, time_s: float | None, is_last: bool) -> bool:
        if self._profiles is None:
            self._profiles = ScriptProfiles(
                self._spec,
                self._board,
                rank=self.rank,
                world_size=self.world_size,
                is_local=self._is_local,
                folder=run_folder(self._spec, workspace=self._workspace).root,
                visible=lambda: offers_to_clients(self._spec, logs=ray_logs(self._workspace)),
                emit=self.emit,
            )
        if self._beat is not None and self.is_profiled and not is_last:
            self._beat.phase(PHASE)  # To write the files takes longer than a step.
        took_time = self._profiles.end_step(step, time_s=time_s, is_last=is_last)
        if self._beat is not None and took_time and not is_last:
            self._beat.phase("")
        return took_time

    def start_facts(self) -> dict[str, Any]:
        from llmops_kernel.driver.inputs import installed_versions, machine

        # Which files a script reads is not known: those of its workspace are in the record.
        self.emit(InputsEvent(inputs=RunInputs(versions=installed_versions(), machine=machine())))
        return {"versions": installed_versions(), "hosts": (os.uname().nodename,)}

    def keep_checkpoint(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        event = self._copies.keep(path, step=step, keep=keep)
        self._board.put(KEPT, {"step": step})
        if self._journal is not None:
            report.store(self._spec, self._journal.paths[:1])
        return event

    def newest_checkpoint(self) -> StoredCheckpoint | None:
        return self._copies.newest()

    def agreed_checkpoint(self) -> StoredCheckpoint | None:
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


# --- Copies of a script's checkpoints ---


CONTENT = "content"
"""Name of a checkpoint's file in its folder, where the script wrote a file and no folder."""
_LOCK = ".lock"


class CheckpointCopies:
    """The checkpoints of one run, as a process on this node sees them."""

    def __init__(self, spec: RunSpec, *, workspace: Path) -> None:
        self._folder = run_folder(spec, workspace=workspace).checkpoints
        self._run_id = spec.run_id
        self._attempt = spec.attempt
        self._hashes = HashesLater()

    def keep(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        """Copy a checkpoint to where a retry finds it. Raises OSError and StoreError."""
        begun_s = time.perf_counter()
        copy = keep_copy(path, self._folder, step=step, keep=keep)
        bucket = open_bucket(self._run_id)
        if bucket is None:
            self._hashes.add(copy)
        return CheckpointEvent(
            step=step,
            path=str(copy) if bucket is None else _upload(bucket, copy, keep=keep),
            size_bytes=checkpoint.size_bytes(copy),
            duration_s=time.perf_counter() - begun_s,
        )

    def newest(self) -> StoredCheckpoint | None:
        """Return the newest complete checkpoint. Raises StoreError when the bucket is away."""
        path = self._newest()
        return None if path is None else _kept(path)

    def choose(self) -> CheckpointChoice | None:
        """Return the newest one for the other workers. Raises StoreError, OSError."""
        path = self._newest()
        if path is None:
            return None
        try:
            files = agreement.sizes(path)
        except ValueError as error:
            raise StoreError(
                f"{path.name} was changed while it was read: {error}", remedy="`llmops retry`"
            ) from error
        token = checkpoint.token(path) or ""
        return CheckpointChoice(path.name, _kept(path).step, token=token, sizes=files)

    def take(self, choice: CheckpointChoice, *, rank: int, view_s: float) -> StoredCheckpoint:
        """Return the checkpoint that rank 0 chose.

        Raises StoreError if this worker sees another one there, or none, also after `view_s`.
        """
        path, bucket = self._folder / choice.name, open_bucket(self._run_id)
        if bucket is not None:
            stored = Stored(f"checkpoints/{choice.name}", choice.step, choice.token)
            if problem := self._fetch_chosen(bucket, stored, path):
                raise not_fetched(path, rank=rank, problem=problem)
            return _kept(path)
        problem = agreement.wait_for(path, choice.sizes, view_s=view_s)
        if not problem:
            with _locked(self._folder):
                problem = "" if self._is_sound(path) else "the SHA-256 of a file differs"
        if problem:
            raise agreement.other_view(path, rank=rank, problem=problem)
        return _kept(path)

    def _fetch_chosen(self, bucket: Bucket, stored: Stored, path: Path) -> str:
        if stored not in bucket.complete():
            return "it is not there, or was written again"
        with _locked(self._folder):  # The workers of a node fetch it once.
            return fetch(bucket, stored, path)

    def _newest(self) -> Path | None:
        bucket = open_bucket(self._run_id)
        if bucket is None:
            return self._newest_here()
        # This node's own disk may have checkpoints that never reached the bucket.
        for stored in reversed(bucket.complete()):
            path = self._folder / stored.name.rpartition("/")[2]
            with _locked(self._folder):
                damage = fetch(bucket, stored, path)
            if not damage:
                return path
        return None

    def _newest_here(self) -> Path | None:
        if checkpoint.latest(self._folder) is None:
            return None
        with _locked(self._folder):
            while newest := checkpoint.latest(self._folder):
                if self._is_sound(newest.path):
                    return newest.path
                checkpoint.unmark(newest.path)
        return None

    def _is_sound(self, path: Path) -> bool:
        """Read the checkpoint once an attempt, not once a worker."""
        checked, name = path / checkpoint.CHECKED, f"{self._run_id}/{self._attempt}"
        with suppress(OSError):
            if checked.read_text() == name:
                return True
        is_sound = not checkpoint.hash_damage(path)
        if is_sound:
            with suppress(OSError):
                checked.write_text(name)
        return is_sound


def keep_copy(path: Path, folder: Path, *, step: int, keep: int) -> Path:
    """Copy a checkpoint into the run's folder, mark it complete and delete the oldest.

    A copy and no link: a script may write the next one over the same file. Raises OSError.
    """
    target = folder / f"checkpoint-{step}"
    if path.resolve() != target.resolve():
        shutil.rmtree(target, ignore_errors=True)
        if path.is_dir():
            shutil.copytree(path, target)
        else:
            (target / CONTENT).mkdir(parents=True)
            shutil.copy2(path, target / CONTENT / path.name)
    checkpoint.mark_complete(target)
    checkpoint.rotate(folder, keep=max(1, keep))
    return target


def _upload(bucket: Bucket, path: Path, *, keep: int) -> str:
    """Store a copy in the bucket and return its URL there."""
    name, token = f"checkpoints/{path.name}", secrets.token_hex(8)
    files, _ = hashed_while(path, lambda: bucket.put(path, name))
    bucket.mark_complete(name, token=token, files=files)
    checkpoint.mark_complete(path, token=token, files=files, has_other_copy=True)
    bucket.rotate(keep=max(1, keep))
    return bucket.url_of(name)


def _kept(path: Path) -> StoredCheckpoint:
    """Return the file or folder that the script wrote."""
    content = path / CONTENT
    files = sorted(content.iterdir()) if content.is_dir() else []
    return StoredCheckpoint(files[0] if files else path, checkpoint.step_of(path.name) or 0)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
