"""Memory, descriptors and connections of the clients, and whether they are flat."""

from __future__ import annotations

import ctypes
import itertools
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields

import psutil

EVERY_S = 2.0
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Of one process."""

    minute: float
    memory_mb: float
    descriptors: float
    sockets: float
    threads: float


SPARE = {"memory_mb": 25.0, "descriptors": 12.0, "sockets": 8.0, "threads": 8.0}
"""How much more the median of the last quarter may be than that of the first. Each run that goes
on has a connection and a thread, and the number of runs that go on changes."""


def sample(pid: int, *, minute: float) -> Sample:
    process = psutil.Process(pid)
    return Sample(
        minute=minute,
        memory_mb=process.memory_info().rss / MB,
        descriptors=process.num_fds(),
        sockets=len(process.net_connections(kind="inet")),
        threads=process.num_threads(),
    )


def growth(samples: Sequence[Sample]) -> list[str]:
    """What has grown; nothing is said of fewer than eight samples."""
    if len(samples) < 8:
        return []
    quarter = len(samples) // 4
    found = []
    for name, spare in SPARE.items():
        first, last = (_median(part, name) for part in (samples[:quarter], samples[-quarter:]))
        if last > first + spare:
            found.append(f"{name}: {first:.0f} in the first quarter, {last:.0f} in the last")
    return found


def quarters(samples: Sequence[Sample]) -> list[str]:
    """One line a figure: the medians of the four quarters and the most."""
    if len(samples) < 4:
        return []
    cuts = [round(i * len(samples) / 4) for i in range(5)]
    parts = [samples[a:b] for a, b in itertools.pairwise(cuts)]
    lines = [f"  {'':14}{'1st':>8}{'2nd':>8}{'3rd':>8}{'4th':>8}{'most':>8}"]
    for name in (one.name for one in fields(Sample) if one.name != "minute"):
        values = [_median(part, name) for part in parts]
        values.append(max(float(getattr(one, name)) for one in samples))
        lines.append(f"  {name:14}" + "".join(f"{value:>8.0f}" for value in values))
    return lines


def _median(samples: Sequence[Sample], name: str) -> float:
    return statistics.median(float(getattr(one, name)) for one in samples)


class Sampler:
    """Counts in a thread from `start` to `close`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._begun_s = time.monotonic()
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.wait(EVERY_S):
            minute = (time.monotonic() - self._begun_s) / 60
            # The allocator holds on to what was used once: 60 runs that one process submits add 30
            # MiB, the next ones none, and this gives most of it back. A leak stays.
            ctypes.CDLL(None).malloc_trim(0)
            for name, pid in self._pids.items():
                with suppress(psutil.Error):
                    self.samples[name].append(sample(pid, minute=minute))

    def close(self) -> None:
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
