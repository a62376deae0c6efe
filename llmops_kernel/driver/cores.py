"""How many of a node's cores a process of ours computes with."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from llmops_kernel.hardware.priority import cores_each
from llmops_kernel.warm.launcher import DRIVER_ENV_VAR
from llmops_kernel.warm.refresh import set_threads


def use_cores(num_processes: int) -> int:
    """Divide the node's cores among that many processes; return the threads of this one.

    Ray gives an actor that asks for no CPU one thread (it sets OMP_NUM_THREADS to 1). Libraries
    read the variable when they are imported; torch is set again when it is loaded already.
    """
    threads = cores_each(num_processes)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return threads


def threads_set_by_user() -> bool:
    """Return whether OMP_NUM_THREADS has a value that Ray would not have set by default."""
    return os.environ.get("OMP_NUM_THREADS", "1") != "1"


def use_all_cores() -> None:
    """Compute with all cores of the node, as a program that a shell starts.

    The driver of a job inherits the one thread that Ray gives to the actor that starts it. A
    value that the user has set stays.
    """
    if threads_set_by_user():
        return
    os.environ.pop("OMP_NUM_THREADS", None)
    set_threads(str(cores_each(1)))


# --- Start times of processes, on the clock of time.time(), to a hundredth of a second ---


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def born_s(pid: int) -> float:
    """Return the Unix time (s) at which a process started. Raises OSError if there is none.

    psutil adds the ticks to the kernel's boot time, which has whole seconds only.
    """
    # proc_pid_stat(5): starttime is field 22, in ticks since boot; the name (2) may hold spaces.
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS_PER_S)


def driver_times() -> tuple[float, float | None]:
    """Return the start of this driver and of the Ray job supervisor that is its ancestor, or None.

    A forked driver is a child of the fork server; its launcher is a child of the supervisor.
    """
    pid = int(os.environ.get(DRIVER_ENV_VAR) or os.getpid())
    supervisor = next((one for one in _above(pid) if _is_supervisor(one)), None)
    return born_s(pid), None if supervisor is None else born_s(supervisor)


def _above(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found


def _is_supervisor(pid: int) -> bool:
    try:
        return b"JobSupervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
