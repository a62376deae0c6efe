"""What every view needs from a run: events to poll, and a way to stop it."""

from __future__ import annotations

from typing import Protocol

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord


class Source(Protocol):
    """Polls a journal, each event once, as `jobs.follow.Follower` does."""

    @property
    def view(self) -> RunView: ...

    @property
    def is_over(self) -> bool:
        """Return whether the newest attempt had ended at the last poll."""

    def poll(self) -> list[AnyEvent]:
        """New events, already applied to `view`."""

    def drain(self) -> list[AnyEvent]:
        """Like `poll` after the run has ended, but waits a little for events still in transit."""


class LiveRun(Protocol):
    """A run as `llmops.attach` gives it."""

    @property
    def id(self) -> str: ...

    @property
    def record(self) -> RunRecord: ...

    @property
    def title(self) -> str:
        """What the user calls it; empty without one."""

    def follower(self) -> Source:
        """Return a new source: two views of one run must not take each other's events."""

    def logs(self, *, tail: int | None = None) -> str: ...

    def stop(self) -> object: ...

    def profile(self, steps: int) -> object: ...

    def restart(self) -> object: ...
