"""A run read from its folder alone: the real journal and views, without a cluster."""

from __future__ import annotations

from llmops_kernel.errors import RunStateError
from llmops_kernel.kinds.registry import new_view
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunRecord


class FolderRun:
    """A run that cannot be stopped: there is no cluster."""

    def __init__(self, folder: RunFolder) -> None:
        self.record = RunRecord.model_validate_json(folder.record.read_bytes())
        self.id = self.record.run_id
        self.title = ""
        self._folder = folder

    def follower(self) -> FolderSource:
        return FolderSource(self._folder, kind=self.record.kind)

    def logs(self, *, tail: int | None = None) -> str:
        files = sorted(self._folder.logs.glob("*.log"))
        if not files:
            return ""
        lines = files[-1].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-(tail or 0) :])

    def profile(self, steps: int) -> None:
        self.stop()

    def restart(self) -> None:
        self.stop()

    def stop(self) -> None:
        raise RunStateError(
            f"Run {self.id} was opened from its folder, so it cannot be stopped from here.",
            remedy=f"llmops stop {self.id}",
        )


class FolderSource:
    """Follows the journal in a run's folder."""

    def __init__(self, folder: RunFolder, *, kind: str) -> None:
        self.view = new_view(kind)
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
