"""Where an attempt's log is: in Ray's session folder, kept in the run folder, or on the cluster."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from llmops_kernel.clusters.record import ClusterFolder, cluster_folder
from llmops_kernel.errors import ConfigError
from llmops_kernel.jobs.client import MAX_LOG_LINES, JobsClient
from llmops_kernel.jobs.follow import SHARED_PROVIDERS
from llmops_kernel.runs.log_text import LogText
from llmops_kernel.runs.paths import RunFolder, home
from llmops_kernel.runs.record import Attempt, RunRecord

KEPT_LOG_BYTES = 64 * 1024**2
"""Of a longer log the run folder keeps the end, and says so in its first line."""
_COPY_BYTES = 1 << 20


def saved_log(folder: RunFolder, attempt: int) -> Path:
    return folder.logs / f"driver-{attempt}.log"


def log_on_disk(folder: RunFolder, record: RunRecord, attempt: Attempt) -> LogText | None:
    """The log if this machine has it: whole while the cluster's session lives, then as kept."""
    live = live_log(record, attempt)
    candidates = [live, saved_log(folder, attempt.number), _left_by_cluster(record, attempt)]
    path = next((path for path in candidates if path is not None and path.is_file()), None)
    return None if path is None else LogText(path)


def live_log(record: RunRecord, attempt: Attempt) -> Path | None:
    """The file that Ray writes, when its session folder is on this machine."""
    if (cluster := _local_cluster(record, attempt)) is None:
        return None
    head = cluster.read()
    if head is None or head.host != socket.gethostname():
        return None
    path = head.session / "logs" / _file_name(attempt)
    return path if path.is_file() else None


def _left_by_cluster(record: RunRecord, attempt: Attempt) -> Path | None:
    cluster = _local_cluster(record, attempt)
    return None if cluster is None else cluster.kept_logs / _file_name(attempt)


def _local_cluster(record: RunRecord, attempt: Attempt) -> ClusterFolder | None:
    if record.provider not in SHARED_PROVIDERS:
        return None
    with suppress(ConfigError):
        return cluster_folder(home(), attempt.cluster)
    return None


def _file_name(attempt: Attempt) -> str:
    return f"job-driver-{attempt.submission_id}.log"


def log_over_http(client: JobsClient, attempt: Attempt) -> LogText:
    """The last 50,000 lines as the cluster has them; empty before the driver runs."""
    job = client.get(attempt.submission_id)
    text = client.driver_log(job, lines=MAX_LOG_LINES) if job is not None else ""
    return LogText(text.encode())


def keep_log(source: Path, target: Path) -> None:
    """Copy a log piece by piece; of one that is too long the end. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with source.open("rb") as file, temporary.open("xb") as copy:
            _copy(file, copy)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(file: BinaryIO, copy: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    left_out = max(0, size - KEPT_LOG_BYTES)
    file.seek(left_out)
    if left_out:
        left_out += len(file.readline())  # Begin with a whole line.
        copy.write(f"[llmops] the first {left_out:,} bytes of this log were not kept\n".encode())
    left = size - left_out
    while left > 0 and (chunk := file.read(min(_COPY_BYTES, left))):
        copy.write(chunk)
        left -= len(chunk)
