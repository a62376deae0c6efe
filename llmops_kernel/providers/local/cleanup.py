"""Removes what a local head leaves behind: processes, sockets, its temp dir."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.logs import keep_logs
from llmops_kernel.providers.local.processes import cluster_processes, stop_processes
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.store.files import is_own_folder
from llmops_kernel.store.package import carried

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
