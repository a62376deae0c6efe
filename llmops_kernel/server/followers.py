"""One follower a run, shared by all who look at it: browsers, the list of runs, requests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llmops_kernel.api.run_handle import Run
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.view import RunView
from llmops_kernel.widgets.columns import PackedSteps


class Watched:
    """A run that is being read; `poll` first, then look."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.lock = threading.RLock()
        self.version = 0
        """Counts polls that brought something."""
        self._follower = run.follower()
        self._packed = PackedSteps()
        self._name = secrets.token_hex(4)

    @property
    def view(self) -> RunView:
        return self._follower.view

    @property
    def is_over(self) -> bool:
        return self._follower.is_over

    @property
    def generation(self) -> str:
        """Rows of one generation only ever grow; those of another are other rows."""
        return f"{self._name}-{self._packed.generation}"

    @property
    def num_rows(self) -> int:
        return len(self._packed)

    def rows(self, first: int = 0) -> bytes:
        return self._packed.rows(first)

    def poll(self) -> None:
        with self.lock:
            news = bool(self._follower.poll())
            if self.is_over and news:
                news = bool(self._follower.drain()) or news
            self._packed.sync(self.view)
            self.version += news

    def close(self) -> None:
        self._follower.close()


class Followers:
    """Whoever takes one gives it back; the last one closes it."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._open: dict[str, Watched] = {}
        self._users: dict[str, int] = {}

    def take(self, ref: str) -> Watched:
        """Raises RunNotFoundError."""
        run_id = self.store.resolve(ref)
        with self._lock:
            if run_id not in self._open:
                self._open[run_id] = Watched(Run(self.store, run_id))
            self._users[run_id] = self._users.get(run_id, 0) + 1
            return self._open[run_id]

    def give_back(self, watched: Watched) -> None:
        run_id = watched.run.id
        with self._lock:
            self._users[run_id] -= 1
            if self._users[run_id]:
                return
            del self._users[run_id], self._open[run_id]
        watched.close()

    @contextmanager
    def watching(self, ref: str) -> Iterator[Watched]:
        """For one request; polled."""
        watched = self.take(ref)
        try:
            watched.poll()
            yield watched
        finally:
            self.give_back(watched)

    def __len__(self) -> int:
        return len(self._open)
