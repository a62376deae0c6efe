"""Answers that take a while, refreshed beside the callers and kept for a moment."""

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
"""Keys that are asked at the full pace; each answer of many is kept longer."""
_COST: Final = 20.0
"""An answer that takes 0.1 s of this process's time is made at most every 2 s."""
_RAREST_S: Final = 20.0
_jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_started: list[threading.Thread] = []
_start_lock = threading.Lock()


def beside(job: Callable[[], None]) -> None:
    """Run it in one of a few threads that do not hold up the end of the program."""
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
            # One bad answer must not cost the others their thread.
            _LOG.exception("asking beside")


@dataclass
class _Kept(Generic[T]):
    value: T | None = None
    known_s: float | None = None
    cost_s: float = 0.0
    asked_s: float = field(default_factory=time.monotonic)
    asking: threading.Event | None = None


class Fresh(Generic[T]):
    """One answer for each key; whoever asks often gets the newest that there is.

    The more keys are asked for, and the longer an answer takes, the rarer is each asked anew:
    two hundred clusters must not become a thousand requests a second.
    """

    def __init__(self, *, fresh_s: float, patience_s: float, stale_s: float) -> None:
        """`fresh_s`: not asked again before; `patience_s`: waited for an answer; `stale_s`: an
        answer of that age is better than none.
        """
        self._fresh_s = fresh_s
        self._patience_s = patience_s
        self._stale_s = stale_s
        self._kept: dict[Hashable, _Kept[T]] = {}
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
        """None when there was no answer in time.

        `until_s` is a moment (monotonic) that cuts the patience short.
        """
        kept, asking = self._begin(key, ask)
        patience_s = self._patience_s if patience_s is None else patience_s
        stale_s = self._stale_s * self._rarity()
        if asking is not None:
            now_s = time.monotonic()
            # An answer that is a little old is good enough for whoever looks every second.
            has_old = kept.known_s is not None and now_s - kept.known_s < stale_s
            patience_s = min(patience_s, _OLD_PATIENCE_S) if has_old else patience_s
            if until_s is not None:
                patience_s = min(patience_s, max(0.0, until_s - now_s))
            asking.wait(patience_s)
        with self._lock:
            known_s = kept.known_s
            if known_s is None or time.monotonic() - known_s > stale_s + self._patience_s:
                return None
            return kept.value

    def known(self, key: Hashable) -> bool:
        """Whether there is an answer, however old."""
        with self._lock:
            kept = self._kept.get(key)
            return kept is not None and kept.known_s is not None

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def _begin(
        self, key: Hashable, ask: Callable[[], T]
    ) -> tuple[_Kept[T], threading.Event | None]:
        now_s = time.monotonic()
        with self._lock:
            self._prune(now_s)
            kept = self._kept.setdefault(key, _Kept())
            kept.asked_s = now_s
            fresh_s = max(self._fresh_s * self._rarity(), min(_COST * kept.cost_s, _RAREST_S))
            if kept.known_s is not None and now_s - kept.known_s < fresh_s:
                return kept, None
            if kept.asking is not None:
                return kept, kept.asking
            done = kept.asking = threading.Event()
        beside(lambda: self._ask(kept, ask, done))
        return kept, done

    def _rarity(self) -> float:
        return max(1.0, len(self._kept) / _FEW)

    def _ask(self, kept: _Kept[T], ask: Callable[[], T], done: threading.Event) -> None:
        began_s = time.thread_time()
        try:
            value = ask()
            with self._lock:
                kept.value, kept.known_s = value, time.monotonic()
                kept.cost_s = time.thread_time() - began_s
        finally:
            with self._lock:
                kept.asking = None
            done.set()

    def _prune(self, now_s: float) -> None:
        if len(self._kept) > _FEW and now_s - self._pruned_s > 1.0:
            self._pruned_s = now_s
            old = [key for key, kept in self._kept.items() if now_s - kept.asked_s > _KEPT_S]
            for key in old:
                del self._kept[key]
