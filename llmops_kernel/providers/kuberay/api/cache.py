"""A namespace's objects, kept current by one list and one watch for the whole process."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.providers.kuberay.api.client import (
    Kube,
    KubeError,
    KubeGone,
    KubeUnreachable,
    Watch,
)
from llmops_kernel.providers.kuberay.api.paths import pods_path, raycluster_path, with_scope
from llmops_kernel.providers.kuberay.api.refreshing_cache import run_in_background

Obj = dict[str, Any]
POD_SELECTOR: Final = "ray.io/is-ray-node=yes"
_FORGET_S: Final = 600.0
_POLL_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0
_LONGEST_DENIED_PAUSE_S: Final = 30.0
_FIRST_UNWATCHED_S: Final = 2.0
_LONGEST_UNWATCHED_S: Final = 60.0


@dataclass(frozen=True)
class Snapshot:
    """The objects known at one moment. They are shared and must not be changed."""

    items: Mapping[str, Obj]
    """Objects by name."""
    error: KubeError | None = None
    """Why the objects cannot be kept current."""
    old_s: float = 0.0
    """Seconds since the objects were known to be current; 0 while the watch runs."""


class Cache:
    """Keeps the objects at one path: from the first snapshot until it is no longer used."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        *,
        label_selector: str = "",
        slim: Callable[[Obj], Obj] = lambda obj: obj,
        forget_s: float = _FORGET_S,
    ) -> None:
        """Watch objects; after `forget_s` without a reader the watch ends, and its objects go."""
        self._forget_s = forget_s
        self._kube = kube
        self._path = path
        self._selector = label_selector
        self._slim = slim
        self._items: dict[str, Obj] = {}
        self._version = ""
        self._error: KubeError | None = None
        self._current_s = 0.0
        self._asked_s = self._begun_s = time.monotonic()
        self._lock = threading.Condition()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: Watch | None = None
        self._synced = False
        self._closed = False
        self._polls_until_s = 0.0
        self._unwatched_s = _FIRST_UNWATCHED_S

    def start(self) -> None:
        """Start early, so that a later look waits less."""
        with self._lock:
            self._asked_s = time.monotonic()
            self._start()

    def snapshot(self, *, patience_s: float = 5.0) -> Snapshot:
        """Return the objects: at once if there are any, else after the first list.

        Raises KubeError when nothing is known and the API server cannot be asked.
        """
        with self._lock:
            self._asked_s = time.monotonic()
            self._start()
            self._lock.wait_for(lambda: self._synced or self._error is not None, patience_s)
            if not self._synced:
                raise self._error or self._no_answer()
            old_s = time.monotonic() - self._current_s if self._error is not None else 0.0
            return Snapshot(dict(self._items), self._error, old_s)

    def _no_answer(self) -> KubeUnreachable:
        if credentials := self._kube.waits_for():
            return credentials
        return KubeUnreachable(
            f"The API server of context {self._kube.context} has not answered for"
            f" {time.monotonic() - self._begun_s:.0f} s",
            remedy=with_scope(
                "check the VPN, and that the cluster is running: `kubectl version` should answer",
                context=self._kube.context,
            ),
        )

    def put(self, obj: Obj) -> None:
        """Store the API server's answer to a change of ours, ahead of the watch."""
        with self._lock:
            name = obj["metadata"]["name"]
            # Older than what the watch has reported, and not there: it was deleted meanwhile.
            is_gone = name not in self._items and _version_of(obj) <= _number(self._version)
            if self._synced and not is_gone:
                self._keep(obj)

    def drop(self, name: str, *, uid: str) -> None:
        """Remove an object that was found to be gone."""
        with self._lock:
            if self._items.get(name, {}).get("metadata", {}).get("uid") == uid:
                del self._items[name]

    def wait(self, timeout_s: float) -> None:
        """Wait until something changes."""
        with self._lock:
            self._lock.wait(timeout_s)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            watch, thread = self._watch, self._thread
            self._lock.notify_all()
        self._wake.set()
        if watch is not None:
            watch.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._begun_s = time.monotonic()
            # A daemon thread: a silent watch must not delay the exit of the program.
            self._thread = threading.Thread(
                target=self._run, name=f"llmops-watch-{self._kube.context}", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._is_over():
            try:
                if not self._version:
                    self._list()
                pause_s = _FIRST_PAUSE_S
                if time.monotonic() >= self._polls_until_s:
                    self._follow()
                else:
                    self._wake.wait(min(_POLL_S, self._unwatched_s))
                    self._version = ""
            except KubeGone:
                self._version = ""
            except KubeError as error:
                self._failed(error)
                self._wake.wait(pause_s * random.uniform(0.8, 1.2))
                pause_s = min(pause_s * 2, _longest_pause_s(error))

    def _is_over(self) -> bool:
        """Return whether it was unused for long.

        It then drops its objects, so memory is bounded.
        """
        with self._lock:
            if self._closed:
                return True
            if time.monotonic() - self._asked_s < self._forget_s:
                return False
            self._items, self._version, self._synced = {}, "", False
            # At once: a look between this and the thread's end starts another.
            self._thread = None
            return True

    def _list(self) -> None:
        items, version = self._kube.list(self._path, label_selector=self._selector)
        by_name = {item["metadata"]["name"]: self._slim(item) for item in items}
        with self._lock:
            self._items, self._version = by_name, version
            self._is_current()
            self._synced = True
            self._lock.notify_all()

    def _follow(self) -> None:
        try:
            watch = self._kube.watch(
                self._path, resource_version=self._version, label_selector=self._selector
            )
        except KubeError as error:
            if error.reason == "Forbidden":
                self._poll_for_now()
                return
            raise
        self._unwatched_s = _FIRST_UNWATCHED_S
        with self._lock:
            if self._closed:
                watch.close()
                return
            self._watch = watch
            self._is_current()
        began_s = time.monotonic()
        try:
            for kind, obj in watch:
                self._apply(kind, obj)
        finally:
            with self._lock:
                self._watch = None
                self._current_s = time.monotonic()
        if time.monotonic() - began_s < 1.0:
            # A proxy that ends every watch at once must not be asked in a hot loop.
            self._wake.wait(_FIRST_PAUSE_S)

    def _poll_for_now(self) -> None:
        """List instead, and ask for the watch again later.

        Some roles allow `list` without `watch`. But an API server that starts refuses everything
        to everybody until it has read its roles, and an administrator may add the verb.
        """
        self._polls_until_s = time.monotonic() + self._unwatched_s * random.uniform(0.8, 1.2)
        self._unwatched_s = min(self._unwatched_s * 2, _LONGEST_UNWATCHED_S)

    def _apply(self, kind: str, obj: Obj) -> None:
        with self._lock:
            self._is_current()
            self._version = obj["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                return
            if kind == "DELETED":
                self._items.pop(obj["metadata"]["name"], None)
            else:
                self._keep(obj)
            self._lock.notify_all()

    def _keep(self, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        present = self._items.get(name)
        if present is None or _version_of(obj) >= _version_of(present):
            self._items[name] = self._slim(obj)
            self._lock.notify_all()

    def _is_current(self) -> None:
        self._error = None
        self._current_s = time.monotonic()

    def _failed(self, error: KubeError) -> None:
        with self._lock:
            self._error = error
            self._lock.notify_all()


def _longest_pause_s(error: KubeError) -> float:
    is_denied = error.reason in ("Forbidden", "ApiNotFound", "Unauthorized")
    return _LONGEST_DENIED_PAUSE_S if is_denied else _LONGEST_PAUSE_S


def _version_of(obj: Obj) -> int:
    return _number(obj["metadata"].get("resourceVersion"))


def _number(version: Any) -> int:
    with suppress(ValueError, TypeError):
        return int(version)
    return 0


def slim_raycluster(obj: Obj) -> Obj:
    """Keep of `managedFields`, which is half of the object, only when something but status changed.

    Of its entries one is left, `{"time": ...}` of the last such change.
    """
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    times = [
        entry["time"]
        for entry in obj["metadata"].get("managedFields") or ()
        if isinstance(entry, dict) and entry.get("time") and entry.get("subresource") != "status"
    ]
    if times:
        metadata["managedFields"] = [{"time": max(times)}]  # RFC 3339 in UTC: they sort as texts.
    return {**obj, "metadata": metadata}


def slim_pod(obj: Obj) -> Obj:
    """Keep what shows where a pod is and what it waits for; no environment, no commands."""
    metadata = obj["metadata"]
    spec = dict(obj.get("spec") or {})
    for part in ("containers", "initContainers"):
        spec[part] = [_slim_container(container) for container in spec.get(part) or []]
    return {
        "metadata": {key: metadata[key] for key in _POD_META if key in metadata},
        "spec": spec,
        "status": obj.get("status") or {},
    }


def _slim_container(container: Obj) -> Obj:
    return {key: container[key] for key in ("name", "image", "resources") if key in container}


_POD_META = (
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "ownerReferences",
    "resourceVersion",
)
_caches: dict[tuple[int, str, str], tuple[Kube, Cache]] = {}
_lock = threading.Lock()


def rayclusters_of(kube: Kube, namespace: str) -> Cache:
    """Return the cache of a namespace's RayClusters, one for the whole process."""
    return _shared(kube, raycluster_path(namespace), slim=slim_raycluster)


def pods_of(kube: Kube, namespace: str) -> Cache:
    """Return the cache of a namespace's Ray pods, of all clusters; started when first needed."""
    return _shared(kube, pods_path(namespace), slim=slim_pod, label_selector=POD_SELECTOR)


def _shared(
    kube: Kube, path: str, *, slim: Callable[[Obj], Obj], label_selector: str = ""
) -> Cache:
    key = (kube.key, path, label_selector)
    with _lock:
        if key not in _caches:
            _close_old()
            _caches[key] = (kube, Cache(kube, path, label_selector=label_selector, slim=slim))
        return _caches[key][1]


def _close_old() -> None:
    """End the watches of clients that a changed kubeconfig has replaced."""
    for key, (kube, cache) in [*_caches.items()]:
        if kube.is_replaced:
            del _caches[key]
            run_in_background(cache.close)


def close_caches() -> None:
    """End all watches of this process; the next look starts new ones."""
    with _lock:
        open_ones = list(_caches.values())
        _caches.clear()
    for _, cache in open_ones:
        cache.close()
