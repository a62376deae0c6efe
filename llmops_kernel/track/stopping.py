"""Agrees among all workers on the step after which a run stops, at no cost per step.

Rank 0 sees the request at its n-th call and publishes "stop at call n + 2". Before it returns from
call n + 1 it waits until whatever another rank may still have in its hand is older than the
publication. A worker reaches its call n + 2 only after rank 0 has left call n + 1 (the exchange of
gradients is between the two), so every rank answers True in the same call.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

STOP = "stop"
"""Set by the driver when the user asks for a stop."""
STOP_AT = "stop_at"
"""Number of the call in which every rank answers True."""
ASKS = "asks"
"""Set when the script asks for the first time whether to stop."""
STOPPED = "stopped"
"""The step at which the script was asked to stop."""
KEPT = "kept"
"""The step of the newest checkpoint that this attempt has kept."""

Sleep = Callable[[float], object]


class Board(Protocol):
    """Small values that the driver and all processes of a script see."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, value: Any) -> None: ...


class FileBoard:
    """A folder of one machine, one JSON file a value."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return None

    def put(self, name: str, value: Any) -> None:
        with suppress(OSError):
            scratch = self.folder / f".{name}-{threading.get_ident()}"
            scratch.write_text(json.dumps(value))
            scratch.replace(self.folder / name)


class BoardReader:
    """Reads one value of a board; what it returns is never older than `max_age_s`.

    A thread of its own reads in advance, so that asking usually costs nothing.
    """

    def __init__(
        self,
        board: Board,
        name: str,
        *,
        max_age_s: float,
        clock: Callable[[], float] = time.monotonic,
        in_background: bool = True,
    ) -> None:
        self._board, self._name = board, name
        self._max_age_s, self._clock = max_age_s, clock
        self._latest: tuple[float, Any] = (float("-inf"), None)
        if in_background and max_age_s > 0:
            threading.Thread(target=self._watch, daemon=True, name=f"llmops-{name}").start()

    def latest(self) -> Any:
        read_s, value = self._latest
        if value is not None:
            return value  # Set once, never taken back.
        return self._read() if self._clock() - read_s > self._max_age_s else value

    def _read(self) -> Any:
        begun_s = self._clock()
        try:
            value = self._board.get(self._name)
        except Exception:  # The cluster's head may be away for a moment; errors vary.
            return self._latest[1]
        self._latest = (begun_s, value)
        return value

    def _watch(self) -> None:
        while self._read() is None:
            time.sleep(self._max_age_s / 2)


class StopAgreement:
    """The agreement of one worker; `ask` is called once per step on every rank."""

    def __init__(
        self,
        board: Board,
        *,
        rank: int,
        world_size: int,
        reader: Callable[[str], BoardReader],
        max_age_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._board = board
        self._rank, self._world_size = rank, world_size
        self._reader = reader(STOP if rank == 0 else STOP_AT)
        self._max_age_s, self._clock, self._sleep = max_age_s, clock, sleep
        self._calls = 0
        self._agreed_call: int | None = None
        self._published_s = 0.0

    def ask(self) -> bool:
        """Return True in the call that all ranks agreed upon, and after it."""
        self._calls += 1
        if self._rank != 0:
            agreed_call = self._reader.latest()
            return agreed_call is not None and self._calls >= agreed_call
        if self._calls == 1:
            self._board.put(ASKS, True)
        if self._world_size == 1:
            return bool(self._reader.latest())
        return self._lead()

    def _lead(self) -> bool:
        if self._agreed_call is None:
            if self._reader.latest():
                self._agreed_call = self._calls + 2
                self._board.put(STOP_AT, self._agreed_call)
                self._published_s = self._clock()
            return False
        if self._calls == self._agreed_call - 1:
            self._sleep(max(0.0, self._published_s + self._max_age_s - self._clock()))
        return self._calls >= self._agreed_call
