"""Small values shared by a run's driver and workers, in Ray's own key-value store.

Needs no further process and no shared disk; deleted with the cluster.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from llmops_kernel.driver.compat import get as private

_NAMESPACE = "llmops"


def key(run_id: str, attempt: int, name: str) -> str:
    """Return the full name of one attempt's value."""
    return f"{run_id}/{attempt}/{name}"


def put(name: str, value: Any) -> None:
    """Store a value that JSON can hold."""
    private("_internal_kv_put")(name, json.dumps(value), overwrite=True, namespace=_NAMESPACE)


def get(name: str) -> Any:
    """Return the value; None if there is none."""
    raw = private("_internal_kv_get")(name, namespace=_NAMESPACE)
    return None if raw is None else json.loads(raw)


def delete(name: str) -> bool:
    """Remove a value; return whether it was there, which is True for one caller only."""
    return bool(private("_internal_kv_del")(name, namespace=_NAMESPACE))


def values(prefix: str) -> list[Any]:
    """Return the values of all names that begin with `prefix`, by name."""
    names = private("_internal_kv_list")(prefix, namespace=_NAMESPACE)
    each = (get(name.decode() if isinstance(name, bytes) else name) for name in sorted(names))
    return [value for value in each if value is not None]


class Flag:
    """Watches a key in a thread, so that `is_set` costs the training loop nothing."""

    def __init__(self, name: str, *, interval_s: float = 0.5) -> None:
        self._name = name
        self._interval_s = interval_s
        self._set = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="llmops-stop-flag").start()

    def is_set(self) -> bool:
        return self._set.is_set()

    def _watch(self) -> None:
        while not self._set.is_set():
            try:
                if get(self._name):
                    self._set.set()
            except Exception:  # The head is away for a moment; Ray raises various errors.
                time.sleep(self._interval_s)
            self._set.wait(self._interval_s)


def pop(name: str) -> Any:
    """Return a value and remove it, so that no later process of the run gets it again."""
    value = get(name)
    if value is not None:
        delete(name)
    return value


class Requests:
    """Hands out each value once that `pop` takes from a store; a thread does it now and then."""

    def __init__(self, pop: Callable[[], Any], *, interval_s: float = 0.5) -> None:
        self._pop, self._interval_s = pop, interval_s
        self._newest: Any = None
        threading.Thread(target=self._watch, daemon=True, name="llmops-requests").start()

    def take(self) -> Any:
        """Return the newest value if it was not taken yet, else None."""
        newest, self._newest = self._newest, None
        return newest

    def _watch(self) -> None:
        while True:
            with suppress(Exception):  # The head is away for a moment; Ray raises various errors.
                if (value := self._pop()) is not None:
                    self._newest = value
            time.sleep(self._interval_s)
