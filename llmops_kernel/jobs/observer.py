"""Events that observers add to a run's journal: one observer at a time, in a separate stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import Event
from llmops_kernel.store.files import file_lock
from llmops_kernel.store.journal.journal import JournalWriter

LOCK_NAME = ".lock"
E = TypeVar("E", bound=Event)


def journal_lock(journal: Path) -> AbstractContextManager[None]:
    """Hold the journal's lock; the kernel releases it when the holder dies."""
    return file_lock(journal / LOCK_NAME, mode=0o644)


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
        appended = writer.emit(event)
        writer.close()
    if writer.num_waiting:
        raise StoreError(
            f"Cannot write to the journal in {journal}", remedy="free space on that disk"
        )
    return appended
