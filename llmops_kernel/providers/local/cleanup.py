"""What a local head leaves behind: its last words and logs, and all that is removed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.processes import cluster_processes, stop_processes
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.providers.protocol import JobLogs
from llmops_kernel.store.files import is_own_folder
from llmops_kernel.store.package import carried

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COMPONENTS = ("gcs_server", "raylet", "dashboard", "dashboard_agent", "monitor")
_LINES_PER_FILE = 4
_READ_BYTES = 64 * 1024
_KEEP_BYTES = 32 * 1024**2
_UNREGISTERED = re.compile(
    r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d).*have not registered within the timeout", re.MULTILINE
)
_RECENT_S = 600.0
_MANY = 2
_EXIT = re.compile(r"^\s*(\w+) \[exit code=(.+)\]\s*$", re.MULTILINE)


def log_tail(record: HeadRecord, folder: ClusterFolder) -> str:
    """Return the last lines that each part of the head wrote, errors first."""
    logs = _logs_folder(record, folder)
    files = [logs / "ray_process_exit.log"]
    files += [logs / f"{name}.err" for name in _COMPONENTS]
    files += [logs / f"{name}.{end}" for name in _COMPONENTS for end in ("log", "out")]
    blocks = [_block(path) for path in (*files, folder.head_log)]
    return "\n".join(block for block in blocks if block)


def exited_part(record: HeadRecord, folder: ClusterFolder) -> str:
    """Return `gcs_server ended with exit code -9`; empty if no log says so."""
    text = _end_of(_logs_folder(record, folder) / "ray_process_exit.log")
    exits = [f"{part} ended with exit code {code}" for part, code in _EXIT.findall(text)]
    return ", ".join(dict.fromkeys(exits))


def unregistered(record: HeadRecord, *, now_s: float | None = None) -> str:
    """Return that worker processes of Ray do not come up, which runs wait for; empty if they do.

    The raylet tries again for ever, so several of them within minutes and none that has come up.
    """
    log = record.session / "logs" / "raylet.out"
    with suppress(OSError):
        now_s = time.time() if now_s is None else now_s
        if now_s - log.stat().st_mtime > _RECENT_S:
            return ""
        times = [_unix_s(match) for match in _UNREGISTERED.findall(_end_of(log))]
        recent = [at_s for at_s in times if now_s - at_s < _RECENT_S]
        if len(recent) >= _MANY and not _registered_since(record, recent[-1]):
            return (
                f"Ray's worker processes do not come up: {len(recent)} did not register in time"
                f" within the last {_RECENT_S / 60:.0f} minutes, see {log}"
            )
    return ""


def _registered_since(record: HeadRecord, since_s: float) -> bool:
    """Return whether a worker came up: it writes a log of its own then."""
    logs = record.session / "logs"
    return any(path.stat().st_mtime > since_s for path in logs.glob("python-core-worker-*.log"))


def _unix_s(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S"))


def last_error(folder: ClusterFolder) -> str:
    """Return the last message of a failed start: the end of a traceback, or an error line."""
    lines = [line for line in _end_of(folder.head_log).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or [""])[-1].strip()


def keep_logs(record: HeadRecord, folder: ClusterFolder) -> None:
    """Move Ray's logs out of the temp dir: drivers' logs are read after the cluster is gone.

    Best effort: a full disk must not keep a cluster from being stopped.
    """
    source = record.session / "logs"
    if not source.is_dir():
        return
    shutil.rmtree(folder.kept_logs, ignore_errors=True)
    with suppress(OSError, shutil.Error):
        shutil.copytree(source, folder.kept_logs, ignore=_not_worth_keeping)


def _not_worth_keeping(parent: str, names: list[str]) -> set[str]:
    def skip(path: Path) -> bool:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return True
        return path.is_file() and not 0 < path.stat().st_size <= _KEEP_BYTES

    return {name for name in names if skip(Path(parent, name))}


def _logs_folder(record: HeadRecord, folder: ClusterFolder) -> Path:
    live = record.session / "logs"
    return live if live.is_dir() else folder.kept_logs


def _block(path: Path) -> str:
    lines = [line for line in _end_of(path).splitlines() if line.strip()][-_LINES_PER_FILE:]
    return "\n".join([f"--- {path.name}", *lines]) if lines else ""


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _READ_BYTES))
            return _ANSI.sub("", file.read().decode(errors="replace"))
    except OSError:
        return ""


def job_logs(folder: ClusterFolder, submission_id: str) -> JobLogs:
    """Return the driver log in Ray's session, and the one that is kept when the head ends."""
    file, head = f"job-driver-{submission_id}.log", folder.read()
    is_here = head is not None and not head.is_elsewhere
    live = head.session / "logs" / file if head is not None and is_here else None
    return JobLogs(live, folder.kept_logs / file)


# --- Removes what a local head leaves behind: processes, sockets, its temp dir ---


STOP_GRACE_S: Final = 15.0
_SOCKET_FOLDER: Final = "pymp-"
"""So multiprocessing names the folders of its sockets; Ray's dashboard makes one at each start."""


def clear(record: HeadRecord, folder: ClusterFolder) -> None:
    """End the processes, move Ray's logs to the cluster's folder, remove the temp dir.

    Raises ClusterError when a process does not end.
    """
    survivors = end_processes(record)
    launch.reap()
    if survivors:
        pids = " ".join(str(process.pid) for process in survivors)
        raise ClusterError(
            f"Processes of cluster {record.name!r} did not end after SIGKILL: {pids}",
            remedy=f"they are probably blocked in the kernel (network disk, GPU driver): check"
            f" them with ps -l {pids}",
        )
    with suppress(OSError):
        folder.targets.unlink()
    if not is_own(record.temp_dir.parent):
        return  # After a reboot, another user may have made that folder in /tmp, with links in it.
    keep_logs(record, folder)
    carried.keep(record.session, cache=record.kept_package)
    shutil.rmtree(record.temp_dir, ignore_errors=True)


def end_processes(record: HeadRecord) -> list[psutil.Process]:
    """End the processes and remove their sockets; return what is still alive, usually nothing."""
    sockets = set(_socket_folders(record))
    survivors = stop_processes(record, grace_s=STOP_GRACE_S)
    for path in sockets:
        shutil.rmtree(path, ignore_errors=True)
    return survivors


def _socket_folders(record: HeadRecord) -> Iterator[Path]:
    """Return the folders that multiprocessing removes at the end of a process, unless it is killed.

    They are beside the cluster's own folder, one more at each stop, for as long as the host keeps
    its temporary files.
    """
    for process in cluster_processes(record):
        with suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="unix"):
                folder = Path(str(connection.laddr)).parent
                if folder.name.startswith(_SOCKET_FOLDER) and is_own(folder):
                    yield folder


def is_own(folder: Path) -> bool:
    """Return whether it is a folder of this user, and no link to one; False if it is gone."""
    with suppress(OSError):
        return is_own_folder(folder)
    return False
