"""What a driver journals: the start-up so far, the processes, failures and the end."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from llmops_kernel.driver.folders import offers_to_clients, open_journal, visible_journal
from llmops_kernel.driver.journal_copies import RECALL_S, recall, store
from llmops_kernel.driver.process_times import driver_times
from llmops_kernel.driver.storage import storage_folder
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import (
    EndEvent,
    Event,
    FailureEvent,
    PhaseEvent,
    ProcessEvent,
    WarningEvent,
)
from llmops_kernel.store.logs.run_lines import RunLines
from llmops_kernel.store.outputs.parts import announced
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.warm.for_jobs import start_report


class DriverReport:
    """The driver's stream of the journal."""

    def __init__(self, spec: RunSpec, *, logs: Path | None) -> None:
        """`logs`: Ray's log folder of this node."""
        self._spec, self._logs = spec, logs
        self._journal = open_journal(spec, "driver", logs=logs)
        self._lines = RunLines()
        target = visible_journal(spec, logs=logs)
        # In the background: the start must not wait for the storage.
        self._recall = threading.Thread(target=recall, args=(spec, target), daemon=True)
        self._recall.start()

    def emit(self, event: Event) -> None:
        self._journal.emit(event)
        self._lines.take(event)

    def phase(
        self, name: str, state: Literal["begin", "end"], *, time_s: float = 0.0, detail: str = ""
    ) -> None:
        self.emit(PhaseEvent(name=name, state=state, time_s=time_s, detail=detail))

    def phases_so_far(self) -> None:
        """Report when the job's supervisor and this driver were started."""
        born_s, parent_s = driver_times()
        if parent_s is not None:
            # Ray may use an idle process that is older than the run.
            parent_s = born_s if parent_s < self._spec.submitted_s else parent_s
            self.phase("runtime_env", "end", time_s=parent_s)
            self.phase("supervisor", "begin", time_s=parent_s)
            self.phase("supervisor", "end", time_s=born_s)
        self.phase("driver", "begin", time_s=born_s)
        warm, reason = start_report()
        self.emit(ProcessEvent(role="driver", warm=warm, reason=reason))

    def warn(self, message: str, remedy: str = "") -> None:
        self.emit(WarningEvent(message=message, remedy=remedy))

    def wrote(self, folder: Path, *, what: str, size_bytes: int | None) -> None:
        """Journal an output in the run's own folder, which may be on this node only."""
        journal = offers_to_clients(self._spec, logs=self._logs)
        kept_at = str(folder) if storage_folder(self._spec.run_id) else ""
        self.emit(
            announced(folder, what=what, size_bytes=size_bytes, journal=journal, kept_at=kept_at)
        )

    def failed(self, failures: list[FailureEvent]) -> EndEvent:
        """Journal each failure; return the end that names the first."""
        for failure in failures:
            self.emit(failure)
        first = failures[0]
        where = f" ({first.file}:{first.line})" if first.file and first.line else ""
        message = first.message if where and first.file in first.message else first.message + where
        return EndEvent(state="FAILED", message=message, remedy=first.remedy)

    def end(self, event: EndEvent, *, others: Sequence[str] = ()) -> int:
        """Journal the end; return the driver's exit status.

        `others`: streams of other processes on this node that are stored with the driver's.
        """
        self.emit(event)
        print(f"{event.state}: {event.message}" if event.message else event.state, flush=True)
        own = self._journal.paths[:1]
        names = [f"{self._spec.attempt}-{stream}.jsonl" for stream in others]
        store(self._spec, [*own, *(path.with_name(name) for path in own for name in names)])
        self._journal.close()
        self._recall.join(RECALL_S)
        return 1 if event.state == "FAILED" else 0


def failure_of(error: Exception, *, remedy: str) -> FailureEvent:
    """Return an error as an event; one that is none of ours gets `remedy` and its traceback."""
    if isinstance(error, LLMOpsError):
        return FailureEvent(error=type(error).__name__, message=error.message, remedy=error.remedy)
    failure = FailureEvent(
        error=type(error).__name__,
        message=f"{type(error).__name__}: {error}",
        remedy=remedy,
        traceback="".join(traceback.format_exception(error)),
    )
    print_traceback(failure)
    return failure


def print_traceback(failure: FailureEvent) -> None:
    if failure.traceback:
        print(failure.traceback, file=sys.stderr, flush=True)
