"""Waiting for a head that is coming up, and saying why it did not."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from llmops_kernel.errors import ClusterStartError
from llmops_kernel.hardware.load import busy_words, patience_s
from llmops_kernel.providers.dashboard import Dashboard
from llmops_kernel.providers.local.cleanup import last_error, log_tail
from llmops_kernel.providers.local.launch import how_it_ended
from llmops_kernel.providers.local.processes import head_process
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.providers.local.status import start_phases, unready
from llmops_kernel.providers.protocol import Connection, Progress
from llmops_kernel.store.package import carried

_PASSING = re.compile(r"bind|address already in use|timed out|the raylet ended", re.I)
_POLL_S = 0.1
_SAY_EVERY_S = 10.0


class StartCutShort(Exception):
    """The head ended, or was not ready in time."""

    def __init__(self, reason: str, *, error: str = "", log: str = "", phase: str = "") -> None:
        busy = busy_words()
        super().__init__(reason)
        self.reason = f"{reason}{f' ({phase})' if phase else ''}{f'; {busy}' if busy else ''}"
        self._error = error
        self._log = log
        self._is_slow = bool(busy)

    @property
    def worth_another_try(self) -> bool:
        return self._is_slow or bool(_PASSING.search(self._error))

    def as_start_error(self, folder: ClusterFolder) -> ClusterStartError:
        """Return the error in one sentence; what the parts of the head wrote last is in a file."""
        error_text = f". Its last error: {self._error}" if self._error else ""
        with suppress(OSError):
            folder.failed_start.write_text(self._log)
        advice = "try again when the machine is less busy; " if self._is_slow else ""
        return ClusterStartError(
            f"{self.reason}{error_text}",
            remedy=f"{advice}{folder.failed_start} has the last lines of Ray's logs, and"
            f" {folder.kept_logs} all of them; `llmops doctor` checks memory, disk and versions",
        )


def wait_for_start(
    record: HeadRecord,
    folder: ClusterFolder,
    *,
    connection: Connection,
    packages: Path,
    timeout_s: float,
    report: Progress,
) -> None:
    """Wait for a head that this process has started; record its start. Raises StartCutShort."""
    package = carried.find(packages, cache=record.kept_package)  # While the head starts.
    wait_until_ready(record, folder, connection=connection, timeout_s=timeout_s, report=report)
    if package is not None:
        carried.hand_over(package, cache=record.kept_package, session=record.session)
    folder.write_start(record)


def wait_until_ready(
    record: HeadRecord,
    folder: ClusterFolder,
    *,
    connection: Connection,
    timeout_s: float,
    report: Progress | None = None,
) -> None:
    """Wait until the head has started and its dashboard answers to our token.

    On a busy machine it waits longer than `timeout_s`, by its load. Raises StartCutShort.
    """
    began = time.monotonic()
    steps = _Steps(record, report=report)
    with Dashboard(connection) as dashboard:
        while True:
            if head_process(record) is None:
                raise _ended_early(record, folder, phase=steps.now)
            # Asked only at the end: an answer costs the starting dashboard 50 ms.
            is_up = record.ray_address is not None
            steps.check()
            answers = is_up and dashboard.session_name() == record.session_name is not None
            if answers and not unready(record, jobs_answer=dashboard.jobs() is not None):
                return
            passed_s = time.monotonic() - began
            if passed_s > patience_s(timeout_s):
                reason = f"The head was not ready within {passed_s:.0f} s"
                raise _cut_short(reason, record, folder, phase=steps.now)
            time.sleep(_POLL_S)


class _Steps:
    """Reports each part of the head once, when it appears, and every 10 s how long it takes."""

    def __init__(self, record: HeadRecord, *, report: Progress | None) -> None:
        self._record = record
        self._report = report
        self._began = self._said = time.monotonic()
        # Who called has said that Ray is being started.
        self.now = start_phases(record)[0]
        self._reported = {self.now}

    def check(self) -> None:
        for phase in start_phases(self._record):
            self._once(phase)
        if time.monotonic() - self._said > _SAY_EVERY_S:
            self._say(self.now, busy_words())

    def _once(self, step: str) -> None:
        if step not in self._reported:
            self._reported.add(step)
            self.now = step
            self._say(step)

    def _say(self, step: str, detail: str = "") -> None:
        self._said = time.monotonic()
        if self._report is not None:
            elapsed = f"{self._said - self._began:.1f} s"
            self._report(f"{step} ({'; '.join(filter(None, [elapsed, detail]))})")


def _ended_early(record: HeadRecord, folder: ClusterFolder, *, phase: str) -> StartCutShort:
    end = how_it_ended(record.pid) if record.pid is not None else ""
    reason = f"The head ended {end}".rstrip() + " while it was starting"
    return _cut_short(reason, record, folder, phase=phase)


def _cut_short(
    reason: str, record: HeadRecord, folder: ClusterFolder, *, phase: str
) -> StartCutShort:
    return StartCutShort(
        reason, error=last_error(folder), log=log_tail(record, folder), phase=phase
    )
