"""Start times of processes, on the clock of time.time(), to a hundredth of a second."""

from __future__ import annotations

import os
import time
from pathlib import Path

from llmops_kernel.warm.launcher import DRIVER_ENV_VAR

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
    supervisor = next((ancestor for ancestor in _above(pid) if _is_supervisor(ancestor)), None)
    return born_s(pid), None if supervisor is None else born_s(supervisor)


def _above(pid: int) -> list[int]:
    ancestors: list[int] = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        ancestors.append(pid)
    return ancestors


def _is_supervisor(pid: int) -> bool:
    try:
        return b"JobSupervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
