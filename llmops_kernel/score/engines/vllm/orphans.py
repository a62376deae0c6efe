"""Ends the processes of an engine whose own process was killed.

On GPUs vLLM's engine core is a child process that does not notice the death of its parent, and
would keep the GPU's memory (vllm#20860). `python -m llmops_kernel.score.engines.vllm.orphans PID`
remembers what PID starts; when PID is gone, it kills what is left of that, and ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import psutil

_MODULE = "llmops_kernel.score.engines.vllm.orphans"
_POLL_S = 0.5


def watch_over_this_process() -> subprocess.Popen[bytes]:
    """Start the watcher, and wait until it looks; it ends with this process, or by `terminate`."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # It must outlive a signal to this process's group.
    )
    assert watcher.stdout is not None
    watcher.stdout.readline()
    return watcher


def main(pid: int) -> None:
    seen: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        print("watching", flush=True)
        while parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
            for child in parent.children(recursive=True):
                seen.setdefault(child.pid, child)
            seen = {number: child for number, child in seen.items() if child.is_running()}
            time.sleep(_POLL_S)
    for child in seen.values():
        # `kill` compares the time of its start: another process may have got the number since.
        if child.pid != psutil.Process().pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))
