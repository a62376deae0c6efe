"""Counts processes, descriptors, disk and memory of each user, and says what grows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil

from tests.soak.user import User

_QUIET_S = 30.0
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Of one user, between two rounds: no run is active."""

    minute: float
    processes: int
    zombies: int
    descriptors: int
    memory_mb: float
    """Memory of the user's processes that no other process has (USS)."""
    disk_kb_per_run: float
    """The home's disk by the runs in it; 0 without runs."""
    tmp_files: int


# How much more than at the first sample there may be at the end. Ray keeps idle processes for
# some minutes, opens connections and log files as it likes, and its dashboard keeps 10,000 jobs.
SPARE = {
    "processes": 4.0,
    "zombies": 0.0,
    "descriptors": 150.0,
    "memory_mb": 250.0,
    "disk_kb_per_run": 40.0,
    "tmp_files": 0.0,
}


def sample(user: User, *, began_s: float) -> Sample:
    """Count once the last run's processes are gone, or 30 s later."""
    mine = processes_of(user)
    deadline_s = time.monotonic() + _QUIET_S
    while (
        any("steps.py" in line for line in map(command_line, mine))
        and time.monotonic() < deadline_s
    ):
        time.sleep(0.5)
        mine = processes_of(user)
    descriptors, memory, zombies = 0, 0, 0
    for process in mine:
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                zombies += 1
                continue
            descriptors += _descriptors(process)
            memory += process.memory_full_info().uss
    runs = user.data / "runs"
    num_runs = len(list(runs.iterdir())) if runs.exists() else 0
    return Sample(
        minute=(time.monotonic() - began_s) / 60,
        processes=len(mine) - zombies,
        zombies=zombies,
        descriptors=descriptors,
        memory_mb=memory / MB,
        disk_kb_per_run=user.used_bytes() / 1e3 / num_runs if num_runs else 0.0,
        tmp_files=len(_own_entries(user)),
    )


def _descriptors(process: psutil.Process) -> int:
    """Open descriptors, without the log files of Ray's log monitor.

    It opens each worker's log, up to 200 (RAY_LOG_MONITOR_MAX_OPEN_FILES), closes all and begins
    again.
    """
    number = process.num_fds()
    if "log_monitor.py" in command_line(process):
        number -= len(process.open_files())
    return number


def processes_of(user: User) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user.uid:
                found.append(process)
    return found


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _own_entries(user: User) -> list[Path]:
    """Entries of /tmp itself: what each start or run leaves there adds up."""
    with suppress(OSError):
        return [path for path in Path("/tmp").iterdir() if path.lstat().st_uid == user.uid]
    return []


def slope_per_hour(samples: Sequence[Sample], name: str) -> float | None:
    """Least squares; None for fewer than three samples."""
    points = [(one.minute / 60, float(getattr(one, name))) for one in samples]
    if len(points) < 3:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    width = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / width if width else None


def growth(samples: Sequence[Sample]) -> list[str]:
    """What is more at the end than it may be; medians of three samples at both ends."""
    if len(samples) < 6:
        return []
    found = []
    for name, spare in SPARE.items():
        first, last = (_median(part, name) for part in (samples[:3], samples[-3:]))
        if last > first + spare:
            found.append(f"{name}: {first:.0f} at the start, {last:.0f} at the end")
    return found


def table(samples: Sequence[Sample]) -> list[str]:
    """One line a quantity: first, last, highest, growth an hour."""
    lines = [f"  {'':16}{'first':>9}{'last':>9}{'highest':>9}{'an hour':>10}"]
    for name in (field.name for field in fields(Sample) if field.name != "minute"):
        values = [float(asdict(one)[name]) for one in samples]
        slope = slope_per_hour(samples, name)
        change = "-" if slope is None else f"{slope:+.1f}"
        ends = f"{values[0]:>9.0f}{values[-1]:>9.0f}{max(values):>9.0f}"
        lines.append(f"  {name:16}{ends}{change:>10}")
    return lines


def _median(samples: Sequence[Sample], name: str) -> float:
    values = sorted(float(getattr(one, name)) for one in samples)
    return values[len(values) // 2]


def cpu_seconds() -> float:
    """Of all processes here, those that have ended included: whoever reaped them counts them."""
    total = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            used = process.cpu_times()
            total += used.user + used.system + used.children_user + used.children_system
    return total
