"""The script's own process below the driver, for a script that is started once.

A process of its own, because the driver has to outlive whatever the script does: `ray.init`
replaces its signal handlers, `os._exit` and a crash leave nothing behind to report the end.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver.cores import use_all_cores
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.track.stopping import FileBoard
from llmops_kernel.train.script.program import run_program

FAILURE = "failure"
"""Name on the board under which the script's process leaves its failure."""

_PR_SET_PDEATHSIG = 1


def start(config: ScriptConfig, *, board: Path, is_warm: bool) -> int:
    """Fork the process that runs the script; returns its pid. The caller has no threads yet."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_script(config, board=board, parent=parent, is_warm=is_warm)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # Both sides do it, so that neither comes too late.
    return pid


def _become_script(config: ScriptConfig, *, board: Path, parent: int, is_warm: bool) -> NoReturn:
    status = 1
    try:
        _separate(parent, is_warm=is_warm)
        status = _run(config, board)
    finally:
        _end(status)


def _separate(parent: int, *, is_warm: bool) -> None:
    """Leave the driver's process group, so that a stop reaches the driver alone; die with it."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if not is_warm:
        # Below a plain interpreter Ray sends the stop signal to this process as well.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.register_at_fork(after_in_child=_unblock)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _run(config: ScriptConfig, board: Path) -> int:
    workspace = Path.cwd()
    link_assets(workspace)
    if "OMP_NUM_THREADS" not in config.env:
        use_all_cores()
    failure = run_program(config, workspace)
    if failure is None:
        return 0
    FileBoard(board).put(FAILURE, failure.model_dump(mode="json"))
    return 1


def _end(status: int) -> NoReturn:
    """End like the interpreter: wait for threads, run exit handlers, write what is buffered."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        status = status or 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)
