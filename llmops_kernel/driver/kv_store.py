"""Small values shared by a run's driver and workers, in Ray's own key-value store.

Needs no further process and no shared disk; deleted with the cluster.
"""

from __future__ import annotations

import json
import threading
import time
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


def delete(name: str) -> None:
    """Remove a value; one that is not there is no error."""
    private("_internal_kv_del")(name, namespace=_NAMESPACE)


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
