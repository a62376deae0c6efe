"""Small facts shared by a run's driver and workers, through Ray's own key-value store.

Needs no further process and no shared disk; gone with the cluster.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from ray.experimental import internal_kv

_NAMESPACE = "llmops"


def key(run_id: str, attempt: int, name: str) -> str:
    return f"{run_id}/{attempt}/{name}"


def put(name: str, value: Any) -> None:
    internal_kv._internal_kv_put(name, json.dumps(value), overwrite=True, namespace=_NAMESPACE)


def get(name: str) -> Any:
    """The value, or None."""
    raw = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)
    return None if raw is None else json.loads(raw)


def values(prefix: str) -> list[Any]:
    names = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    found = (get(name.decode() if isinstance(name, bytes) else name) for name in sorted(names))
    return [value for value in found if value is not None]


class Flag:
    """Watches a key from a thread of its own, so that asking costs the training loop nothing."""

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
            except Exception:  # the head is away for a moment; Ray's errors here vary
                time.sleep(self._interval_s)
            self._set.wait(self._interval_s)
