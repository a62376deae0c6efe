"""Processes of a local head, and how they end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import psutil

from llmops_kernel.providers.local.record import HeadRecord

MARK_ENV_VAR = "LLMOPS_CLUSTER_DIR"
"""Every process of a head inherits it; its value is the head's temp dir, used only once."""

# psutil derives start times from the boot time, which moves when the clock is set.
_CREATED_TOLERANCE_S = 2.0
_FOLLOW_S = 1.5
_OF_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the entrypoint of a submitted job."""


def head_process(record: HeadRecord) -> psutil.Process | None:
    """Return the living `ray start --block`, or None."""
    if record.pid is None or record.is_elsewhere:
        return None
    try:
        process = psutil.Process(record.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        created_s = process.create_time()
        is_same = abs(created_s - (record.pid_created_s or 0.0)) < _CREATED_TOLERANCE_S
        return process if is_same or str(record.temp_dir) in " ".join(process.cmdline()) else None
    except psutil.Error:
        return None


def cluster_processes(record: HeadRecord) -> list[psutil.Process]:
    """Return the head and all its descendants: Ray's own, workers, drivers, their children.

    A process is ours by the mark in its environment. Some of Ray's dashboard processes
    overwrite theirs with a title; those are known by the head's session or parentage.
    Never by command line: an editor or a `tail` may name our folder too.
    """
    if record.is_elsewhere:
        return []
    head = head_process(record)
    family = {process.pid for process in _family(head)}
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and _is_ours(process, record, family, head is not None)
    ]


def job_processes(record: HeadRecord) -> list[psutil.Process]:
    """Return the processes of jobs, drivers and what they started; not Ray's own workers."""
    processes = []
    for process in cluster_processes(record):
        with suppress(psutil.Error):
            if process.environ().get(_OF_A_JOB):
                processes.append(process)
    return processes


def stop_processes(record: HeadRecord, *, grace_s: float) -> list[psutil.Process]:
    """Ask, wait, insist. Returns what is still alive, which should be nothing."""
    everyone = cluster_processes(record)
    head = head_process(record)
    if head is not None:
        # The head ends its own children in order; workers and drivers see that and follow.
        _signal([head], psutil.Process.terminate)
        wait_gone([head], timeout_s=grace_s)
        wait_gone(everyone, timeout_s=_FOLLOW_S)
    survivors = _alive([*everyone, *cluster_processes(record)])
    _signal(survivors, psutil.Process.terminate)
    wait_gone(survivors, timeout_s=2.0)
    for _ in range(3):  # A killed process may have started another one just before.
        survivors = _alive([*survivors, *cluster_processes(record)])
        _signal(survivors, psutil.Process.kill)
        wait_gone(survivors, timeout_s=2.0)
        if not _alive([*survivors, *cluster_processes(record)]):
            return []
    return _alive(survivors)


def wait_gone(processes: Sequence[psutil.Process], *, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while _alive(processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_ours(
    process: psutil.Process, record: HeadRecord, family: set[int], head_lives: bool
) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        mark = process.environ().get(MARK_ENV_VAR)
        if mark is not None:
            return mark == str(record.temp_dir)
        if process.pid in family:
            return True
        if record.pid is None or os.getsid(process.pid) != record.pid:
            return False
        # Once the head has ended, its number may belong to another session.
        return head_lives or _has_file_in(process, str(record.temp_dir))
    except (psutil.Error, OSError):
        return False


def _has_file_in(process: psutil.Process, folder: str) -> bool:
    return any(file.path.startswith(f"{folder}/") for file in process.open_files())


def _family(head: psutil.Process | None) -> Iterator[psutil.Process]:
    if head is None:
        return
    try:
        yield head
        yield from head.children(recursive=True)
    except psutil.Error:
        return


def _alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the living processes.

    Zombies are dead: under some container inits they stay forever.
    """
    survivors = []
    for process in set(processes):
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                survivors.append(process)
        except psutil.Error:
            continue
    return survivors


def _signal(processes: Iterable[psutil.Process], action: object) -> None:
    assert callable(action)
    for process in processes:
        try:
            action(process)
        except psutil.Error:
            continue
