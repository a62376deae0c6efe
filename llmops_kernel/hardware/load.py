"""The load and free memory of this machine, and how much longer things may take on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST = 10.0
_GROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "file", "shmem"),
    (
        *("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        *("total_cache", "total_shmem"),
    ),
)
"""For both versions of control groups: folder, limit, use, and names in memory.stat."""


def load_per_core() -> float | None:
    """Return how many processes want to run for each core that this one may use.

    None where the system does not say. In a container it is the load of the host.
    """
    try:
        cores = len(os.sched_getaffinity(0))
        return os.getloadavg()[0] / max(1, cores)
    except (OSError, AttributeError):
        return None


def is_loaded() -> bool:
    """Return whether more processes want to run than there are cores."""
    return (load_per_core() or 0.0) > 1.0


def patience_s(usual_s: float, *, most: float = _MOST) -> float:
    """Return how long to wait for what takes `usual_s` at most on a machine that is not busy."""
    return usual_s * min(most, max(1.0, load_per_core() or 1.0))


def busy_words() -> str:
    """Return `this machine is busy: load 21.3 on 2 cores`; empty if it is not."""
    per_core = load_per_core()
    if per_core is None or per_core < 1.5:
        return ""
    cores = len(os.sched_getaffinity(0))
    return f"this machine is busy: load {per_core * cores:.1f} on {cores} core{'s'[: cores != 1]}"


def memory(root: Path = Path("/")) -> Iterator[tuple[int, int]]:
    """Yield free and total bytes: of the machine, and of a container whose memory is limited."""
    with suppress(OSError, KeyError, ValueError):
        facts = _table(root / "proc/meminfo")
        yield facts["MemAvailable:"] * 1024, facts["MemTotal:"] * 1024
    for folder, most, now, files, shared in _GROUPS:
        group = root / folder
        with suppress(OSError, KeyError, ValueError):
            limit = int((group / most).read_text())  # "max" without a limit.
            stat = _table(group / "memory.stat")
            # What it holds of files can be dropped, but not what is in /dev/shm.
            used = int((group / now).read_text()) - stat[files] + stat[shared]
            yield limit - used, limit


def _table(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: int(value) for name, value, *_ in lines}
