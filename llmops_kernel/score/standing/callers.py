"""Who uses an engine: who waits until it is loaded, and whose answers nobody wants any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

UNASKED_S = 60.0
"""How long an engine stays that nobody asks to load: who started it is gone."""


class Callers:
    """Safe for threads: each call of the engine has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._dropped: set[str] = set()
        self._was_asked = False

    @contextmanager
    def waits(self, caller: str) -> Iterator[None]:
        """While a call of this caller waits until the engine is loaded."""
        with self._lock:
            self._was_asked = True
            self._waiting.append(caller)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.remove(caller)

    def anybody_waits(self, *, but: str | None = None) -> bool:
        """Return whether a call waits, of another caller than this one."""
        with self._lock:
            return any(one != but for one in self._waiting)

    def drop(self, caller: str) -> None:
        """Nobody wants the answers of that caller, also not of calls that arrive later."""
        with self._lock:
            self._dropped.add(caller)

    def is_dropped(self, caller: str) -> bool:
        with self._lock:
            return caller in self._dropped

    def stay_s(self, keep_s: float) -> float:
        """Return how long the engine stays without use, where used ones stay `keep_s`."""
        return keep_s if self._was_asked else min(keep_s, UNASKED_S)
