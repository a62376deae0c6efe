"""One process that has its imports behind it and waits for a job: an answer in half the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llmops_kernel.services.data.process import Child

IDLE_S = 900.0


class Spare:
    """Its process ends when nobody needs it for `idle_s`, and with `close`."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._timer: threading.Timer | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Of the process that waits; None without one."""
        child = self._child
        return child.process.pid if child is not None and child.is_alive else None

    def fill(self) -> None:
        """Start a process if none waits."""
        with self._lock:
            if self._is_closed or (self._child is not None and self._child.is_alive):
                return
            self._end()
            self._child = Child()
            self._timer = threading.Timer(self._idle_s, self._drop, (self._child,))
            self._timer.daemon = True
            self._timer.start()

    def take(self) -> Child:
        """Return the process that waits, else a new one."""
        with self._lock:
            child, self._child = self._child, None
            if self._timer is not None:
                self._timer.cancel()
        if child is not None and child.is_alive:
            return child
        if child is not None:
            child.close()
        return Child(ahead=False)

    def close(self) -> None:
        """End the process; no other starts."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _drop(self, child: Child) -> None:
        with self._lock:
            if self._child is child:
                self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.close()
        self._child = None


@contextmanager
def spare(*, begin: bool = True) -> Iterator[Spare]:
    """Inside, a process imports what a job needs while this one imports and reads the config.

    Without `begin` it starts when it is taken. It ends with the block if nobody has taken it.
    """
    one = Spare()
    try:
        if begin:
            one.fill()
        yield one
    finally:
        one.close()
