"""Measurements of a run's workers and hosts, and where workers stand that make no step.

A number that nobody could measure is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

FIRST_HOUR_S = 3600.0


class Sample(BaseModel):
    """A measurement; what another version knows besides is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class WorkerSample(Sample):
    """A worker process of the run, or an engine's, and its GPU."""

    rank: int
    """Of a scoring the number of the replica."""
    host: str
    pid: int
    cpu: float | None = None
    """Cores that the process used since the sample before; 1.0 is one core."""
    memory_bytes: int | None = None
    """Resident set of the process."""
    gpu: str = ""
    """The GPU's name; empty without one."""
    gpu_utilization: float | None = None
    """0..1: share of the time in which a kernel ran (NVML)."""
    gpu_memory_bytes: int | None = None
    """Of all processes on the GPU."""
    gpu_memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_clock_hz: float | None = None
    throttled: tuple[str, ...] | None = None
    """Why its clocks are lowered, such as `power cap`; empty: they are not."""
    step: int | None = None
    """The last step that has ended."""
    step_s: float | None = None
    """Mean time of a step since the sample before. The next three are parts of it."""
    data_s: float | None = None
    """Waiting for data."""
    others_s: float | None = None
    """Waiting for other ranks, and communication that nothing hides."""
    host_s: float | None = None
    """Step of an optimizer whose states are in host memory."""
    is_slow: bool = False
    """Slower than the other ranks by more than a fifth for ten steps; see `slow_part`."""
    slow_part: str = ""

    @property
    def busy_s(self) -> float | None:
        """Return the seconds of a step in which it does not wait for other ranks."""
        if self.step_s is None or self.others_s is None:
            return None
        return max(0.0, self.step_s - self.others_s)


class HostSample(Sample):
    """A machine that the run uses."""

    host: str
    node: str = ""
    """Ray's id of the node; empty where the driver does not use Ray."""
    cpu: float | None = None
    """0..1 of all cores since the sample before. In a container that of the machine."""
    cores: int | None = None
    load: float | None = None
    """Processes that want to run, mean of a minute."""
    memory_used_bytes: int | None = None
    """Of the container, where its memory is limited."""
    memory_total_bytes: int | None = None
    disk_used_bytes: int | None = None
    """Of the disk with the run's folder on this host."""
    disk_total_bytes: int | None = None
    disk_read_bytes_per_second: float | None = None
    """Of all disks of the machine."""
    disk_write_bytes_per_second: float | None = None
    network_sent_bytes_per_second: float | None = None
    """Of all interfaces but the loopback."""
    network_received_bytes_per_second: float | None = None


class StackGroup(Sample):
    """Workers that stand at the same place."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    state: Literal["stopped", "collective", "data", "code", "gone", "unknown"]
    """`stopped`: by a signal, such as SIGSTOP. `collective`: waits for other ranks. `data`: reads
    or waits for rows. `code`: runs something else. `gone`: there is no such process."""
    place: str = ""
    """`file.py:12 (function)`, in the user's workspace where there is such a line."""
    note: str = ""
    """Why there is no stack."""
    frames: tuple[str, ...] = ()
    """The stack, innermost call first: `function (file.py:12)`."""


def sample_interval_s(age_s: float, *, every_s: float) -> float:
    """Return the seconds until the next sample of an attempt of that age.

    `every_s` in the first hour, then in proportion to the age: with 5 s after a day 2 minutes, and
    in a week about 4,400 samples, 720 x (1 + ln 168).
    """
    return every_s * max(1.0, age_s / FIRST_HOUR_S)


# --- Who waits for whom ---


def verdict(groups: Sequence[StackGroup]) -> str:
    """Return who waits for whom, in a sentence or two."""
    waiting = [rank for group in groups if group.state == "collective" for rank in group.ranks]
    others = [group for group in groups if group.state != "collective"]
    sentences = [_about(group) for group in others]
    if waiting and others:
        absent = sorted(rank for group in others for rank in group.ranks)
        collectives = " and ".join(g.place for g in groups if g.state == "collective")
        sentences.append(
            f"{_ranks(waiting)} wait{'s' * (len(waiting) == 1)} in {collectives} for"
            f" {_ranks(absent).lower()}, which {'is' if len(absent) == 1 else 'are'} not in it."
        )
    elif len(groups) > 1:
        listed = "; ".join(f"{_ranks(group.ranks).lower()} in {group.place}" for group in groups)
        sentences.append(f"The ranks wait for each other in different collectives: {listed}.")
    elif waiting:
        sentences.append(
            f"{_ranks(waiting)} wait{'s' * (len(waiting) == 1)} in the same collective,"
            f" {groups[0].place}: a device or the network between them does not answer."
        )
    return " ".join(sentences)


def _about(group: StackGroup) -> str:
    who = _ranks(group.ranks)
    where = ", ".join(
        f"pid {pid} on {host}" for pid, host in zip(group.pids, group.hosts, strict=True)
    )
    at = f" at {group.place}" if group.place else ""
    one = len(group.ranks) == 1
    if group.state == "stopped":
        return f"{who} ({where}) {'is' if one else 'are'} stopped by a signal (state T){at}."
    if group.state == "gone":
        return f"{who} ({where}) {'has' if one else 'have'} no process any more."
    if group.state == "unknown":
        return f"{who} ({where}): no stack; {group.note}."
    verb = "reads or waits for data" if group.state == "data" else "runs Python code"
    plural = "read or wait for data" if group.state == "data" else "run Python code"
    return f"{who} ({where}) {verb if one else plural}{at}."


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"Rank {listed}" if len(ranks) == 1 else f"Ranks {listed}"


def stacks_text(groups: Sequence[StackGroup]) -> str:
    """Return all stacks for a log or a file."""
    blocks = []
    for group in groups:
        where = ", ".join(
            f"{rank} (pid {pid} on {host})"
            for rank, pid, host in zip(group.ranks, group.pids, group.hosts, strict=True)
        )
        lines = [f"rank {where}: {group.state}", *(f"    {frame}" for frame in group.frames)]
        blocks.append("\n".join([*lines, *([f"    {group.note}"] if group.note else [])]))
    return "\n\n".join(blocks)
