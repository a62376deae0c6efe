"""Measure whether a process makes progress: by its processor time, however busy the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LEAST_S = 0.05
"""A process that polls for something that does not come uses a little as well."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits from which a fork server is taken for hung. A busy machine makes it slow.

    To import the training stack takes 10 to 20 s of processor time, on a slow machine a minute.
    """

    stalled_s: float = 180.0
    """A server that starts has used no processor time for so long."""
    start_cpu_s: float = 900.0
    """Its processor time, and that of its children, without becoming ready."""
    answer_s: float = 10.0
    """A hung server does not answer and uses no processor time meanwhile."""
    answer_cpu_s: float = 60.0
    """Its processor time without an answer."""


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    own_s: float
    ended_children_s: float
    """Processor time of children that were waited for."""


class Progress:
    """The processor time that a process uses from now on, with or without its descendants."""

    def __init__(self, pid: int, *, with_children: bool) -> None:
        self._pid, self._with_children = pid, with_children
        self._begin_s = self._seen_s = _used_s(self._stats())
        self.checked_s = self._grew_s = time.monotonic()

    def look(self) -> float:
        """Return the processor seconds used since this object was made."""
        self.checked_s = time.monotonic()
        stats = self._stats()
        used_s = _used_s(stats)
        waits_for_its_turn = any(stat.state == "R" for stat in stats)
        if used_s - self._seen_s >= _LEAST_S or waits_for_its_turn:
            self._seen_s, self._grew_s = used_s, self.checked_s
        return used_s - self._begin_s

    @property
    def stalled_s(self) -> float:
        """Return the time without progress, at the last look."""
        return self.checked_s - self._grew_s

    def _stats(self) -> list[_Stat]:
        stat = _stat(self._pid)
        if stat is None:
            return []
        if not self._with_children:
            return [replace(stat, ended_children_s=0.0)]
        return [stat, *_descendants(self._pid)]


def _used_s(stats: Iterable[_Stat]) -> float:
    return sum(stat.own_s + stat.ended_children_s for stat in stats)


def _descendants(pid: int) -> Iterator[_Stat]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    stats = {number: stat for number in numbers if (stat := _stat(number)) is not None}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        children = {number: stat for number, stat in stats.items() if stat.parent == parent}
        yield from children.values()
        waiting += children


def _stat(pid: int) -> _Stat | None:
    """Read /proc/PID/stat: proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        used, ended = (sum(map(int, words[index : index + 2])) * _TICK_S for index in (11, 13))
        return _Stat(words[0].decode(), int(words[1]), used, ended)
    except (OSError, ValueError, IndexError):
        return None
