"""The share of the cores that processes get."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

HIGHEST_NICENESS = 19  # The lowest priority that the kernel has.
_NICENESS = 5  # A third of the share of a process with 0.
_QUOTAS = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_NO_QUOTA = ("max", "-1")


def cores_each(num_processes: int) -> int:
    """Return how many of the cores that this process may use each of that many gets; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // max(1, num_processes))


def set_session_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of the session of a process, where the kernel gives sessions equal shares.

    There the niceness of its processes counts only among themselves: sched(7), autogroup. Does
    nothing elsewhere.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))


def give_idle_time(leader: int) -> None:
    """Let the session of a process, which leads it, have only what nobody else wants.

    That is SCHED_IDLE, beside which a process of the lowest niceness is still a heavy one; where
    the kernel refuses it, the lowest niceness. The session's own niceness is for kernels that give
    sessions equal shares.
    """
    try:
        os.sched_setscheduler(leader, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, leader, HIGHEST_NICENESS)
    set_session_niceness(leader, HIGHEST_NICENESS)


def has_idle_time(pid: int) -> bool:
    """Return whether a process, 0 for this one, was given only what nobody else wants."""
    try:
        if os.sched_getscheduler(pid) == os.SCHED_IDLE:
            return True
        return os.getpriority(os.PRIO_PROCESS, pid) >= HIGHEST_NICENESS
    except (OSError, AttributeError):
        return False


def give_share(leader: int) -> bool:
    """Undo `give_idle_time`. Returns False where that is not allowed.

    Linux lets a process leave SCHED_IDLE only with a right that ordinary users lack: sched(7),
    RLIMIT_NICE.
    """
    set_session_niceness(leader, 0)
    for pid in _session_of(leader):
        try:
            if os.sched_getscheduler(pid) == os.SCHED_IDLE:
                os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        except PermissionError:
            return False
        except (OSError, AttributeError):
            continue  # It has ended.
    return True


def _session_of(leader: int) -> list[int]:
    pids = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            if os.getsid(pid) == leader:
                pids.append(pid)
    return pids


def give_way() -> int:
    """Leave the cores to others if they are busy; return the niceness of this process before."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    if is_busy():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, max(before, _NICENESS))
        set_session_niceness(os.getpid(), _NICENESS)
    return before


def take_share(niceness: int) -> None:
    """Leave the session of `give_way`: one of its own has a full share again."""
    with suppress(OSError):  # A leader of a session has one of its own already.
        os.setsid()
    with suppress(OSError):  # Only root may.
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def is_busy() -> bool:
    """Return whether twice as many processes as there are cores want to run, or may want to.

    The load is that of the host: in a container with a quota of its cores it says nothing.
    """
    for path in _QUOTAS:
        with suppress(OSError, IndexError):
            if Path(path).read_text().split()[0] not in _NO_QUOTA:
                return True
    try:
        return os.getloadavg()[0] > 2 * len(os.sched_getaffinity(0))
    except OSError:
        return True
