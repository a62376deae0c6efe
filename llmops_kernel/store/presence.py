"""Which run folders there are, without looking at each of thousands on every call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

_SETTLED_S = 2.0
"""A folder that changed more recently than this is read again: its time of change is coarse."""


class RunFolders:
    """The names of the folders that hold a run record, read again when the folder has changed.

    A run's folder is there before its record; such names are looked at on every call.
    """

    def __init__(
        self, root: Path, *, is_id: Callable[[str], bool], clock: Callable[[], float] = time.time
    ) -> None:
        self._root, self._is_id, self._clock = root, is_id, clock
        self._lock = threading.Lock()
        self._changed_ns = 0
        self._present: frozenset[str] = frozenset()
        self._empty: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the ids of all runs. Raises OSError if the folder cannot be read."""
        with self._lock:
            try:
                changed_ns = os.stat(self._root).st_mtime_ns
            except FileNotFoundError:
                self._present, self._changed_ns = frozenset(), 0
                return self._present
            if changed_ns != self._changed_ns:
                names = {name for name in os.listdir(self._root) if self._is_id(name)}
                self._look(names, known=names & self._present)
                is_settled = self._clock() - changed_ns / 1e9 > _SETTLED_S
                self._changed_ns = changed_ns if is_settled else 0
            elif self._empty:
                self._look(self._present | self._empty, known=self._present)
            return self._present

    def _look(self, names: frozenset[str] | set[str], *, known: frozenset[str] | set[str]) -> None:
        # As texts: ten thousand `Path` objects would take longer than the look itself.
        new = {n for n in names - known if os.path.exists(f"{self._root}/{n}/record.json")}
        self._present = frozenset(known | new)
        self._empty = frozenset(names - self._present)
