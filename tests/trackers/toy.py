"""A tracker in memory, whose process may be killed before, in and after each of its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun


class Killed(BaseException):
    """The process is gone; no `except Exception` sees it."""


@dataclass
class Server:
    """What stays when a process that sends to it is killed."""

    counts: bool
    """Whether it says how many rows it has; else it can be asked for each."""
    kill_at: int = -1
    """Number of the call in which the process is killed, counted from 0."""
    points: list[tuple[int, str, float]] = field(default_factory=list)
    """Step, name and value, in the order of their arrival."""
    num_rows: int = 0
    states: list[str] = field(default_factory=list)
    calls: int = 0

    def call(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.kill_at:
            raise Killed


class ToyTracker:
    def __init__(self, server: Server) -> None:
        self._server = server

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        server = self._server
        server.call()
        is_new = not server.points
        return Link("toy-1", rows=server.num_rows if server.counts else None, is_new=is_new)

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        server = self._server
        if server.counts:
            assert first == server.num_rows
        server.call()
        for row in rows:
            points = [(row.step or 0, name, value) for name, value in row.numbers.items()]
            there = set(server.points) if again and not server.counts else set()
            server.points += [point for point in points if point not in there]
            server.num_rows += row.has_place
            server.call()
        return ""

    def close(self, state: str) -> str:
        self._server.call()
        self._server.states.append(state)
        return ""
