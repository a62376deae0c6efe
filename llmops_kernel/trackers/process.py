"""The process that sends a run to its trackers: `python -m llmops_kernel.trackers.process`.

Beside the run's driver, apart from the training: a tracker that is slow or down costs it nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from llmops_kernel.errors import MissingDependencyError, TrackerError
from llmops_kernel.hardware.load import patience_s
from llmops_kernel.metrics.events import Event, WarningEvent
from llmops_kernel.store.files import private_folder
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunSpec
from llmops_kernel.trackers.forwarder import AFTER_END_S, Forwarder, describe, sending
from llmops_kernel.trackers.tracker import TrackedRun, notes_of, redacted

_POLL_S = 1.0
"""Seconds between two looks at the journal; so much is sent at once."""
_PATIENCE_S = 20.0
"""Seconds that a tracker may be down before the journal says so."""
_LONGEST_PAUSE_S = 15.0
_MOST_PATIENT = 5.0
"""So many times as long as elsewhere a busy machine may take after the run's end."""
_LOG_BYTES = 4 * 2**20


class Job(BaseModel):
    """What the driver passes to the process, on its standard input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: str
    """The run's `RunSpec`, encoded."""
    trackers: tuple[str, ...]
    journal: str
    """Folder of the journal that this machine sees."""
    writes_to: tuple[str, ...]
    """Folders of the journal that its own events go to."""
    folder: str
    """For what was sent, and for the log."""
    home: str | None
    run_folder: str | None
    """The client's folder of the run, where this machine sees it."""
    sees_all: bool
    """Whether `journal` has what workers on other nodes write."""
    driver: int
    """Process id of the driver."""

    def run(self) -> TrackedRun:
        spec = RunSpec.decode(self.spec)
        return TrackedRun(
            run_id=spec.run_id,
            name=str(spec.config.get("name") or spec.kind),
            kind=spec.kind,
            config=spec.config,
            folder=Path(self.folder),
            home=None if self.home is None else Path(self.home),
            facts=spec.facts,
            notes=notes_of(None if self.run_folder is None else RunFolder(Path(self.run_folder))),
        )


class Sender(threading.Thread):
    """Forwards to one tracker until the run is over and all is sent."""

    def __init__(
        self,
        forwarder: Forwarder,
        *,
        emit: Callable[[Event], object],
        is_over: threading.Event,
        sees_all: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._forwarder, self._emit, self._is_over = forwarder, emit, is_over
        self._sees_all = sees_all
        self._has_warned = self.is_done = False

    def run(self) -> None:
        pause_s, failing_since_s = _POLL_S, 0.0
        while not self.is_done:
            is_last = self._is_over.is_set()
            try:
                has_sent = self._forwarder.advance()
                if is_last and not has_sent:
                    if not self._sees_all and self._forwarder.lacks_workers:
                        self.warn_of("Its steps were journalled on another node.")
                    self._forwarder.close(self._forwarder.state)
                    self.is_done = True
                pause_s, failing_since_s = _POLL_S, 0.0
            except MissingDependencyError as error:
                self._warn(f"{error.message}: nothing is sent to it.", error.remedy)
                self.is_done = True
            except Exception as error:
                now_s = time.monotonic()
                failing_since_s = failing_since_s or now_s
                print(f"{self._forwarder.name}: {describe(error)}", flush=True)
                if now_s - failing_since_s >= _PATIENCE_S or isinstance(error, TrackerError):
                    self.warn_of(describe(error), getattr(error, "remedy", ""))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if not is_last:
                self._is_over.wait(pause_s)
            elif failing_since_s:
                time.sleep(min(pause_s, 2 * _POLL_S))

    def warn_of(self, what: str, remedy: str = "") -> None:
        """Journal once that the tracker lacks a part of the run."""
        name = self._forwarder.name
        command = f"`llmops report RUN --to {name}` sends what is missing, also after the run"
        self._warn(
            f"{name} lacks a part of this run, which goes on without it. {what}",
            f"{remedy}; {command}" if remedy else command,
        )

    def _warn(self, message: str, remedy: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._emit(WarningEvent(message=message, remedy=remedy))


def main() -> None:
    with suppress(ImportError):
        # Before the threads: clients that load it at once, each lazily, find half of it.
        import numpy  # noqa: F401
    job = Job.model_validate_json(sys.stdin.read())
    spec, run = RunSpec.decode(job.spec), job.run()
    private_folder(run.folder)
    log = write_redacted(run.folder / "trackers.log")
    folders = [Path(folder) for folder in job.writes_to]
    stream = f"{spec.attempt}-trackers"
    with sending(run, wait_s=(_MOST_PATIENT + 1) * AFTER_END_S):
        journal = JournalWriter(folders, stream=stream, attempt=spec.attempt)
        is_over = threading.Event()
        senders = [
            Sender(
                Forwarder(name, run, Path(job.journal), emit=journal.emit),
                emit=journal.emit,
                is_over=is_over,
                sees_all=job.sees_all,
            )
            for name in job.trackers
        ]
        for sender in senders:
            sender.start()
        _wait(senders, driver=job.driver, is_over=is_over)
    sys.stdout.flush()
    for number in (1, 2):
        os.close(number)
    log.join(_POLL_S)
    # Threads of a client that hangs must not keep this process.
    os._exit(0)


def _wait(senders: Sequence[Sender], *, driver: int, is_over: threading.Event) -> None:
    """Return when all is sent, or when the time after the driver's end is over."""
    limit_s = deadline_s = float("inf")
    process = psutil.Process(driver) if psutil.pid_exists(driver) else None
    while not all(sender.is_done for sender in senders) and time.monotonic() < deadline_s:
        if not is_over.is_set() and (process is None or not process.is_running()):
            is_over.set()
            limit_s = patience_s(AFTER_END_S, most=_MOST_PATIENT)
            deadline_s = time.monotonic() + limit_s
        time.sleep(0.2)
    for sender in senders:
        if not sender.is_done:
            sender.warn_of(f"It had not taken all {limit_s:.0f} s after the end.")


def write_redacted(path: Path) -> threading.Thread:
    """Have a thread write what this process and its children print to a file, without secrets."""
    read_end, write_end = os.pipe()
    for number in (1, 2):
        os.dup2(write_end, number)
    os.close(write_end)

    def copy() -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines, suppress(OSError):
            for line in lines:
                if not path.exists() or path.stat().st_size < _LOG_BYTES:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(f"{time.strftime('%H:%M:%S')} {redacted(line)}")

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    main()
