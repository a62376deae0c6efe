"""What every view needs of a run: to be polled, and to be told to stop."""

from __future__ import annotations

from typing import Protocol

from llmops_kernel.errors import RunStateError
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.runs.journal import FolderTail
from llmops_kernel.runs.paths import RunFolder
from llmops_kernel.runs.record import RunRecord
from llmops_kernel.runs.view import RunView


class Source(Protocol):
    """What `jobs.follow.Follower` is: polls a journal, each event once."""

    @property
    def view(self) -> RunView: ...

    @property
    def is_over(self) -> bool:
        """The newest attempt has ended, as of the last poll."""

    def poll(self) -> list[AnyEvent]:
        """New events, already applied to `view`."""

    def drain(self) -> list[AnyEvent]:
        """Like `poll` once it is over, but waits a little for what is still on its way."""


class LiveRun(Protocol):
    """A run as `llmops.attach` gives it."""

    @property
    def id(self) -> str: ...

    @property
    def record(self) -> RunRecord: ...

    def follower(self) -> Source:
        """A new source: two views of one run must not take each other's events."""

    def logs(self, *, tail: int | None = None) -> str: ...

    def stop(self) -> object: ...


class FolderRun:
    """A run read from its folder alone: no cluster is asked, nothing can be stopped."""

    def __init__(self, folder: RunFolder) -> None:
        self.record = RunRecord.model_validate_json(folder.record.read_bytes())
        self.id = self.record.run_id
        self._folder = folder

    def follower(self) -> FolderSource:
        return FolderSource(self._folder)

    def logs(self, *, tail: int | None = None) -> str:
        files = sorted(self._folder.logs.glob("*.log"))
        if not files:
            return ""
        lines = files[-1].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-(tail or 0) :])

    def stop(self) -> None:
        raise RunStateError(
            f"Run {self.id} was opened from its folder, so it cannot be stopped from here.",
            remedy=f"llmops stop {self.id}",
        )


class FolderSource:
    """Follows the journal in a run's folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.view = RunView()
        self._tail = FolderTail(folder.journal)

    @property
    def is_over(self) -> bool:
        return self.view.is_terminal

    def poll(self) -> list[AnyEvent]:
        events = self._tail.read()
        self.view.apply(events)
        return events

    def drain(self) -> list[AnyEvent]:
        return self.poll()
