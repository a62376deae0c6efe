"""Hashes a complete checkpoint beside the training, which does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from llmops_kernel.driver import checkpoint_manifest as manifest

T = TypeVar("T")


def hashed_while(folder: Path, work: Callable[[], T]) -> tuple[dict[str, manifest.Entry], T]:
    """Return the manifest with hashes, computed while `work` uploads the same files."""
    with ThreadPoolExecutor(1) as pool:
        hashes = pool.submit(lambda: manifest.hashed(folder, manifest.sizes(folder)))
        result = work()
        return hashes.result(), result


class HashesLater:
    """Adds hashes to checkpoints' manifests, one checkpoint at a time, in threads of its own.

    Until they are added a checkpoint is known by its sizes, which fsync made durable.
    """

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, folder: Path) -> None:
        """Return at once."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # A daemon: the end of a failed process must not wait for hashes.
        thread = threading.Thread(
            target=self._hash, args=(folder,), name="llmops-hashes", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def wait(self, *, limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _hash(self, folder: Path) -> None:
        # A folder that was rotated away meanwhile needs none.
        with self._one_at_a_time, suppress(OSError, ValueError):
            sizes = manifest.read(folder)
            if not sizes or not (folder / manifest.MARKER).exists():
                return
            # One thread: a training on a CPU needs the others.
            found = manifest.hashed(folder, sizes, threads=1)
            if manifest.read(folder) == sizes and not manifest.size_damage(folder):
                manifest.write(folder, found)
