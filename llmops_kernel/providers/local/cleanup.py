"""Removes what a local head leaves behind: processes, sockets, its temp dir."""

from __future__ import annotations

import shutil
from typing import Final

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.logs import keep_logs
from llmops_kernel.providers.local.processes import stop_processes
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord

STOP_GRACE_S: Final = 15.0


def clear(record: HeadRecord, folder: ClusterFolder) -> None:
    """End the processes, move Ray's logs to the cluster's folder, remove the temp dir.

    Raises ClusterError when a process does not end.
    """
    left = stop_processes(record, grace_s=STOP_GRACE_S)
    launch.reap()
    if left:
        pids = " ".join(str(process.pid) for process in left)
        raise ClusterError(
            f"Processes of cluster {record.name!r} did not end after SIGKILL: {pids}",
            remedy=f"they are probably blocked in the kernel (network disk, GPU driver): check"
            f" them with ps -l {pids}",
        )
    keep_logs(record, folder)
    shutil.rmtree(record.temp_dir, ignore_errors=True)
