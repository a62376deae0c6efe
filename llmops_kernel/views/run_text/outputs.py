"""Where the outputs of a run are, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmops_kernel.metrics.events import OutputEvent

COPIED = "copied from the cluster"
TO_COPY = "on the cluster; not copied to the run folder yet"
ONLY_THERE = "only on the cluster: lost when it is suspended or deleted"


@dataclass(frozen=True)
class ShownOutput:
    """One line of a run's outputs."""

    what: str
    path: str
    size_bytes: int | None
    note: str
    """Where it is, if that is not plain from the path; may be empty."""

    @property
    def label(self) -> str:
        """What it is and where, in one cell."""
        return f"{self.what} ({self.note})" if self.note else self.what


def shown_outputs(events: Sequence[OutputEvent]) -> list[ShownOutput]:
    """Return the outputs by time; one that has been copied stands there once, as the copy."""
    copied = {(event.copied_from, event.attempt) for event in events if event.copied_from}
    return [
        ShownOutput(event.what.replace("_", " "), event.path, event.size_bytes, _note(event))
        for event in events
        if event.copied_from or (event.path, event.attempt) not in copied
    ]


def _note(event: OutputEvent) -> str:
    if event.copied_from:
        return COPIED
    if event.place != "node":
        return ""
    return TO_COPY if event.files else ONLY_THERE
