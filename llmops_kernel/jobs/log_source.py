"""Where an attempt's log is: in Ray's session folder, kept in the run folder, or on the cluster."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import BinaryIO

from llmops_kernel.jobs.client import MAX_LOG_LINES, JobsClient
from llmops_kernel.providers.protocol import JobLogs
from llmops_kernel.providers.registry import provider_named, shares_disk
from llmops_kernel.store.logs.text import LogText
from llmops_kernel.store.paths import RunFolder, home
from llmops_kernel.store.record.record import Attempt, RunRecord

KEPT_LOG_BYTES = 64 * 1024**2
"""The run folder keeps only the end of a longer log, and says so in its first line."""
_COPY_BYTES = 1 << 20


def saved_log(folder: RunFolder, attempt: int) -> Path:
    return folder.logs / f"driver-{attempt}.log"


def log_on_disk(folder: RunFolder, record: RunRecord, attempt: Attempt) -> LogText | None:
    """Return the log if it is on this machine: complete while the session lives, then the copy."""
    own = _logs_of_cluster(record, attempt)
    candidates = [own.live, saved_log(folder, attempt.number), own.kept]
    path = next((path for path in candidates if path is not None and path.is_file()), None)
    return None if path is None else LogText(path)


def live_log(record: RunRecord, attempt: Attempt) -> Path | None:
    """Return the file that Ray writes, if its session folder is on this machine."""
    path = _logs_of_cluster(record, attempt).live
    return path if path is not None and path.is_file() else None


def _logs_of_cluster(record: RunRecord, attempt: Attempt) -> JobLogs:
    if not shares_disk(record.provider):
        return JobLogs()
    provider = provider_named(record.provider, home=home())
    return provider.job_logs(attempt.cluster, attempt.submission_id)


def log_over_http(client: JobsClient, attempt: Attempt) -> LogText:
    """Return the cluster's last 50,000 lines; empty before the driver runs."""
    job = client.get(attempt.submission_id)
    text = client.driver_log(job, lines=MAX_LOG_LINES) if job is not None else ""
    return LogText(text.encode())


def keep_log(source: Path, target: Path, *, max_bytes: int = KEPT_LOG_BYTES) -> None:
    """Copy the last `max_bytes` of a log, in chunks. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with source.open("rb") as file, temporary.open("xb") as copy:
            _copy(file, copy, max_bytes)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(file: BinaryIO, copy: BinaryIO, max_bytes: int) -> None:
    size = file.seek(0, os.SEEK_END)
    left_out = max(0, size - max_bytes)
    file.seek(left_out)
    if left_out:
        left_out += len(file.readline())  # Begin with a whole line.
        copy.write(f"[llmops] the first {left_out:,} bytes of this log were not kept\n".encode())
    left = size - left_out
    while left > 0 and (chunk := file.read(min(_COPY_BYTES, left))):
        copy.write(chunk)
        left -= len(chunk)
