"""What a script's driver journals: the start-up so far, the processes, failures and the end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from llmops_kernel.metrics.events import (
    EndEvent,
    Event,
    FailureEvent,
    PhaseEvent,
    ProcessEvent,
    WarningEvent,
)
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.ray.journal_copies import RECALL_S, recall, store
from llmops_kernel.train.ray.process_times import driver_times
from llmops_kernel.train.script.folders import open_journal, visible_journal
from llmops_kernel.warm.start_report import start_report


class DriverReport:
    """The driver's stream of the journal."""

    def __init__(self, spec: RunSpec, *, workspace: Path) -> None:
        self._spec = spec
        self._journal = open_journal(spec, "driver", workspace=workspace)
        target = visible_journal(spec, workspace=workspace)
        # In the background: the start must not wait for the storage.
        self._recall = threading.Thread(target=recall, args=(spec, target), daemon=True)
        self._recall.start()

    def emit(self, event: Event) -> None:
        self._journal.emit(event)

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

    def failed(self, failures: list[FailureEvent]) -> EndEvent:
        """Journal each failure; return the end that names the first."""
        for failure in failures:
            self.emit(failure)
        first = failures[0]
        where = f" ({first.file}:{first.line})" if first.file and first.line else ""
        message = first.message if where and first.file in first.message else first.message + where
        return EndEvent(state="FAILED", message=message, remedy=first.remedy)

    def end(self, event: EndEvent) -> int:
        """Journal the end; return the driver's exit status."""
        self.emit(event)
        print(f"{event.state}: {event.message}" if event.message else event.state, flush=True)
        store(self._spec, self._journal.paths[:1])
        self._journal.close()
        self._recall.join(RECALL_S)
        return 1 if event.state == "FAILED" else 0


def stopped_end(stopped: Any, *, kept: Any) -> EndEvent:
    """Return the end of a script that left after `track.should_stop()`.

    Both are what it put on the board: where it was asked to stop, and its newest checkpoint.
    """
    step, checkpoint_step = _step(stopped), _step(kept)
    if not step:
        return EndEvent(state="STOPPED", message="Stopped before the first step.")
    if checkpoint_step is None or checkpoint_step < step:
        return EndEvent(
            state="STOPPED",
            message=f"Stopped at step {step}, without a checkpoint of it.",
            remedy="call track.checkpoint(path) before the script exits, so that `llmops retry`"
            " can resume there",
            last_step=step,
        )
    return EndEvent(
        state="STOPPED",
        message=f"Stopped at step {step}, after saving a checkpoint.",
        remedy="`llmops retry` resumes from it",
        last_step=step,
    )


def _step(value: Any) -> int | None:
    return value.get("step") if isinstance(value, dict) else None


def ended_at_once() -> EndEvent:
    """Return the end of a script that never asks whether to stop."""
    return EndEvent(
        state="STOPPED",
        message="Stopped. The script does not call track.should_stop(), so it was stopped at once"
        " and nothing was saved"
        ".",
        remedy="call it once per step; when it returns True, save a checkpoint and exit",
    )


def did_not_leave(limit_s: float) -> EndEvent:
    """Return the end of a script that asks, but had not left in time."""
    return EndEvent(
        state="STOPPED",
        message=f"Stopped. The script was still running {limit_s:.0f} s after the request, so it"
        " was ended; what it had not saved is lost.",
        remedy="leave soon after track.should_stop() returns True; a larger stop_wait_s in the"
        " cluster template gives it more time",
    )


def signal_failure(signum: int, *, script: str) -> FailureEvent:
    """Return the failure of a process that a signal ended."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(signum).name
        if signum == signal.SIGKILL:
            message = f"{script} was killed by signal 9, probably because memory ran out."
            remedy = "lower the batch size, or use a node with more memory"
        else:
            message = f"{script} was terminated by signal {signum} ({name})."
            remedy = "the last lines of `llmops logs` may show the reason"
        return FailureEvent(error=name, message=message, remedy=remedy)
    return FailureEvent(error="Signal", message=f"{script} was terminated by signal {signum}.")


def exit_failure(status: int, *, script: str) -> FailureEvent:
    """Return the failure of a process that left without describing it."""
    return FailureEvent(
        error="SystemExit",
        message=f"{script} exited with status {status}.",
        remedy="the last lines of `llmops logs` are what the script printed before",
    )


def print_traceback(failure: FailureEvent) -> None:
    if failure.traceback:
        print(failure.traceback, file=sys.stderr, flush=True)
