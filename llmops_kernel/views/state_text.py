"""Sentences about a run's state: what it waits for, which restart, why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.store.journal.view import STOP_PHASE, RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt


def state_text(view: RunView) -> str:
    """Return one sentence without its end; empty where the state says all."""
    if view.is_terminal:
        return view.message
    state = view.state
    if state == "QUEUED":
        return queue_text(view)
    if state == "RESTARTING":
        return restarting_text(view)
    return _stopping_text(view) if state == "STOPPING" else _busy_text(view)


def _busy_text(view: RunView) -> str:
    """Return `Evaluating: 40 of 96 rows, 2.1 a second`: work of a run without progress.

    Before its first rows each screen has other words for that.
    """
    event = view.counted
    if event is None:
        under_way = [span.name for span in view.phases() if span.end_s is None]
        if not under_way or not view.rows or view.is_outdated:
            return ""
        return kind_named(view.kind).words.get(under_way[-1], under_way[-1].replace("_", " "))
    total = "" if event.total is None else f" of {fmt.count(event.total)}"
    text = f"Evaluating: {fmt.count(event.done)}{total} {event.unit}"
    rate = event.values.get("per_second")
    return text if rate is None else f"{text}, {fmt.rate(rate)} a second"


def queue_text(view: RunView) -> str:
    """Return `Place 1 of 2 in the queue: needs 2 CPUs; 2 of 2 CPUs are used by run lora-2a4c`."""
    queue = view.queue
    if queue is None:
        return ""
    if queue.place is None or queue.length is None:
        return f"Waiting for resources: {queue.reason}"
    return f"Place {queue.place:,} of {queue.length:,} in the queue: {queue.reason}"


def restarting_text(view: RunView) -> str:
    """Return `Restart 1 of 3, from the checkpoint of step 20: worker rank 1 was killed`."""
    restart = view.restarting
    if restart is None:
        return ""
    number = sum(event.attempt == view.attempt for event in view.restarts)
    failures_left = restart.failures_left
    total = "" if failures_left is None else f" of {number + failures_left}"
    since = (
        f"from the checkpoint of step {fmt.count(restart.from_step)}"
        if restart.from_step
        else "from the beginning"
    )
    return f"Restart {number}{total}, {since}: {restart.cause}"


def _stopping_text(view: RunView) -> str:
    details = [span.detail for span in view.phases() if span.name == STOP_PHASE and span.detail]
    return f"Stopping: {details[-1]}" if details else ""


# --- Names of runs: never the id alone ---


def name_of(record: RunRecord, *, title: str = "", differs: str = "") -> str:
    """Return a run's title, else what it differs in, else its config's name."""
    return title or differs or record.name or record.run_id


def name_with_id(name: str, run_id: str) -> str:
    """Return `lr 2e-3 (lora-260901-101500-a1b2)`; an id that begins with the name says both."""
    return run_id if run_id == name or run_id.startswith(f"{name}-") else f"{name} ({run_id})"


def called(record: RunRecord, *, title: str = "") -> str:
    """Return a run's name with its id."""
    return name_with_id(name_of(record, title=title), record.run_id)


# --- Outputs of a run ---


COPIED = "copied from the cluster"
TO_COPY = "on the cluster; not copied to the run folder yet"
ONLY_THERE = "only on the cluster: lost when it is suspended or deleted"


@dataclass(frozen=True)
class ShownOutput:
    """A line of a run's outputs."""

    what: str
    path: str
    size_bytes: int | None
    note: str
    """Where it is, if that is not plain from the path; may be empty."""

    @property
    def label(self) -> str:
        """Return what it is and where, in one cell."""
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
