"""Caches slow answers for a moment and refreshes them in background threads."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_THREADS: Final = 8
_LOG = logging.getLogger(__name__)
_KEPT_S: Final = 60.0
_OLD_PATIENCE_S: Final = 0.02
_FEW: Final = 16
"""Keys that are refreshed at the full pace; with more keys each answer is kept longer."""
_COST: Final = 20.0
"""An answer that takes 0.1 s of this process's time is computed at most every 2 s."""
_RAREST_S: Final = 20.0
_DOUBTFUL_S: Final = 2.0
_jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_started: list[threading.Thread] = []
_start_lock = threading.Lock()


def run_in_background(job: Callable[[], None]) -> None:
    """Run it in one of a few threads that do not delay the exit of the program."""
    with _start_lock:
        if len(_started) < _THREADS:
            thread = threading.Thread(target=_work, name="llmops-ask", daemon=True)
            _started.append(thread)
            thread.start()
    _jobs.put(job)


def _work() -> None:
    while True:
        job = _jobs.get()
        try:
            job()
        except Exception:
            # One failed question must not end the thread that the others need.
            _LOG.exception("asking beside")


@dataclass
class _Entry(Generic[T]):
    value: T | None = None
    known_s: float | None = None
    cost_s: float = 0.0
    asked_s: float = field(default_factory=time.monotonic)
    asking: threading.Event | None = None
    doubts: int = 0


class RefreshingCache(Generic[T]):
    """Keeps one answer for each key; frequent callers get the newest one available.

    The more keys there are, and the longer an answer takes, the less often each is refreshed: two
    hundred clusters must not cause a thousand requests a second.
    """

    def __init__(
        self,
        *,
        refresh_after_s: float,
        patience_s: float,
        stale_s: float,
        is_doubtful: Callable[[T], bool] = lambda _: False,
    ) -> None:
        """Set the limits.

        `refresh_after_s`: an answer is not refreshed before that age. `patience_s`: how long a
        caller waits for one. `stale_s`: up to that age an old answer is better than none.
        `is_doubtful`: a refusal may be over in a moment, so such an answer is asked again, first
        after seconds and then ever later.
        """
        self._refresh_after_s = refresh_after_s
        self._patience_s = patience_s
        self._stale_s = stale_s
        self._is_doubtful = is_doubtful
        self._kept: dict[Hashable, _Entry[T]] = {}
        self._lock = threading.Lock()
        self._pruned_s = 0.0

    def get(
        self,
        key: Hashable,
        ask: Callable[[], T],
        *,
        until_s: float | None = None,
        patience_s: float | None = None,
    ) -> T | None:
        """Return the answer; None if there was none in time.

        `until_s` is a time (monotonic) that limits the wait.
        """
        entry, asking = self._begin(key, ask)
        patience_s = self._patience_s if patience_s is None else patience_s
        stale_s = self._stale_s * self._rarity()
        if asking is not None:
            now_s = time.monotonic()
            # A slightly old answer is good enough for a caller that looks every second.
            has_old = entry.known_s is not None and now_s - entry.known_s < stale_s
            patience_s = min(patience_s, _OLD_PATIENCE_S) if has_old else patience_s
            if until_s is not None:
                patience_s = min(patience_s, max(0.0, until_s - now_s))
            asking.wait(patience_s)
        with self._lock:
            known_s = entry.known_s
            if known_s is None or time.monotonic() - known_s > stale_s + self._patience_s:
                return None
            return entry.value

    def known(self, key: Hashable) -> bool:
        """Return whether there is an answer, however old."""
        with self._lock:
            entry = self._kept.get(key)
            return entry is not None and entry.known_s is not None

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def _begin(
        self, key: Hashable, fetch: Callable[[], T]
    ) -> tuple[_Entry[T], threading.Event | None]:
        now_s = time.monotonic()
        with self._lock:
            self._prune(now_s)
            entry = self._kept.setdefault(key, _Entry())
            entry.asked_s = now_s
            refresh_after_s = max(
                self._age_s(entry) * self._rarity(), min(_COST * entry.cost_s, _RAREST_S)
            )
            if entry.known_s is not None and now_s - entry.known_s < refresh_after_s:
                return entry, None
            if entry.asking is not None:
                return entry, entry.asking
            finished = entry.asking = threading.Event()
        run_in_background(lambda: self._ask(entry, fetch, finished))
        return entry, finished

    def _age_s(self, entry: _Entry[T]) -> float:
        if not entry.doubts:
            return self._refresh_after_s
        return min(_DOUBTFUL_S * 2.0 ** (entry.doubts - 1), self._refresh_after_s)

    def _rarity(self) -> float:
        return max(1.0, len(self._kept) / _FEW)

    def _ask(self, entry: _Entry[T], fetch: Callable[[], T], finished: threading.Event) -> None:
        began_s = time.thread_time()
        try:
            value = fetch()
            with self._lock:
                entry.value, entry.known_s = value, time.monotonic()
                entry.cost_s = time.thread_time() - began_s
                # No more than that: 2 s * 2^15 is longer than any answer is kept.
                entry.doubts = min(entry.doubts + 1, 16) if self._is_doubtful(value) else 0
        finally:
            with self._lock:
                entry.asking = None
            finished.set()

    def _prune(self, now_s: float) -> None:
        if len(self._kept) > _FEW and now_s - self._pruned_s > 1.0:
            self._pruned_s = now_s
            old = [key for key, entry in self._kept.items() if now_s - entry.asked_s > _KEPT_S]
            for key in old:
                del self._kept[key]
