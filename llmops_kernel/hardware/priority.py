"""The share of the cores that processes get."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def set_session_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of the session of a process, where the kernel gives sessions equal shares.

    There the niceness of its processes counts only among themselves: sched(7), autogroup. Does
    nothing elsewhere.
    """
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
