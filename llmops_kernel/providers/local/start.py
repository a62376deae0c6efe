"""Waiting for a head that is coming up, and saying why it did not."""

from __future__ import annotations

import re
import time
from pathlib import Path

from llmops_kernel.errors import ClusterStartError
from llmops_kernel.providers.dashboard.rest import Dashboard
from llmops_kernel.providers.local.launch import how_it_ended
from llmops_kernel.providers.local.logs import last_error, log_tail
from llmops_kernel.providers.local.processes import head_process
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.providers.protocol import Connection, Progress
from llmops_kernel.store.package import carried

_PASSING = re.compile(r"bind|address already in use|timed out during startup|timed out", re.I)
_POLL_S = 0.1


class StartCutShort(Exception):
    """The head ended, or was not ready in time."""

    def __init__(self, reason: str, *, error: str = "", log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self._error = error
        self._log = log

    @property
    def worth_another_try(self) -> bool:
        return bool(_PASSING.search(self._error))

    def as_start_error(self) -> ClusterStartError:
        said = f". Its last error: {self._error}" if self._error else ""
        log = f"\n{self._log}" if self._log else ""
        return ClusterStartError(
            f"{self.reason}{said}{log}",
            remedy="see the lines above; `llmops doctor` checks ports, disk and versions",
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
    package = carried.find(packages, kept=record.kept_package)  # While the head starts.
    wait_until_ready(record, folder, connection=connection, timeout_s=timeout_s, report=report)
    if package is not None:
        carried.hand_over(package, kept=record.kept_package, session=record.session)
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

    Raises StartCutShort.
    """
    began = time.monotonic()
    steps = _Steps(record, report=report)
    with Dashboard(connection) as dashboard:
        while True:
            if head_process(record) is None:
                raise _ended_early(record, folder)
            # Asked only at the end: an answer costs the starting dashboard 50 ms.
            is_up = record.ray_address is not None
            steps.look(is_up=is_up)
            if is_up and dashboard.session_name() == record.session_name is not None:
                return
            if time.monotonic() - began > timeout_s:
                reason = f"The head was not ready within {timeout_s:.0f} s"
                raise _cut_short(reason, record, folder)
            time.sleep(_POLL_S)


class _Steps:
    """Reports each part of the head once, when it appears, with the time it took."""

    def __init__(self, record: HeadRecord, *, report: Progress | None) -> None:
        self._record = record
        self._report = report
        self._began = time.monotonic()
        self._reported: set[str] = set()

    def look(self, *, is_up: bool) -> None:
        logs = self._record.session / "logs"
        self._once("GCS is starting", (logs / "gcs_server.out").exists())
        self._once("dashboard and node are starting", (logs / "raylet.out").exists())
        self._once("both are up", is_up)

    def _once(self, step: str, happened: bool) -> None:
        if happened and step not in self._reported and self._report is not None:
            self._reported.add(step)
            self._report(f"{step} ({time.monotonic() - self._began:.1f} s)")


def _ended_early(record: HeadRecord, folder: ClusterFolder) -> StartCutShort:
    how = how_it_ended(record.pid) if record.pid is not None else ""
    reason = f"The head ended {how}".rstrip() + " while it was starting"
    return _cut_short(reason, record, folder)


def _cut_short(reason: str, record: HeadRecord, folder: ClusterFolder) -> StartCutShort:
    return StartCutShort(reason, error=last_error(folder), log=log_tail(record, folder))
