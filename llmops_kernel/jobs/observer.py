"""What a run's observers add to its journal: one observer at a time, in a separate stream."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import Event
from llmops_kernel.store.files import store_errors
from llmops_kernel.store.journal.journal import JournalWriter

LOCK_NAME = ".lock"
E = TypeVar("E", bound=Event)


@contextmanager
def journal_lock(journal: Path) -> Iterator[None]:
    """Hold the journal's lock; the kernel releases it when the holder dies."""
    path = journal / LOCK_NAME
    with store_errors("lock", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def append_as_observer(
    journal: Path, event: E, *, attempt: int, unless: Callable[[], bool] = lambda: False
) -> E | None:
    """Append to `<attempt>-observer` and return the event; None if `unless()` is true.

    `unless` is called while the lock is held. Raises StoreError.
    """
    with journal_lock(journal):
        if unless():
            return None
        writer = JournalWriter([journal], stream=f"{attempt}-observer", attempt=attempt)
        written = writer.emit(event)
        writer.close()
    if writer.num_waiting:
        raise StoreError(
            f"Cannot write to the journal in {journal}", remedy="free space on that disk"
        )
    return written
