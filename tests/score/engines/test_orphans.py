"""What an engine's process started ends with it, also when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

# A parent with a child and a grandchild that no signal to the parent reaches.
PARENT = """
import subprocess, sys, time
from llmops_kernel.score.engines.vllm.orphans import watch_over_this_process
watcher = watch_over_this_process()
sleep = "import time; time.sleep(600)"
inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])"
child = subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
print(watcher.pid, child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def started() -> Iterator[tuple[int, list[psutil.Process]]]:
    """The parent's pid, and its watcher, child and grandchild."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        watcher, child = (psutil.Process(int(one)) for one in parent.stdout.readline().split())
        deadline = time.monotonic() + 60
        while not child.children() and time.monotonic() < deadline:
            time.sleep(0.05)
        found = [watcher, child, *child.children()]
        time.sleep(5)  # The watcher looks every half second.
        yield parent.pid, found
        parent.kill()
        for one in found:
            if one.is_running():
                one.kill()


def test_children_end_with_a_killed_parent(
    started: tuple[int, list[psutil.Process]],
) -> None:
    pid, processes = started
    assert len(processes) == 3
    os.kill(pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert alive == []
