"""Runs inside `ray start` (RAY_START_HOOK): makes this node's workers come from a fork server."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.launcher import DIR_ENV_VAR
from llmops_kernel.warm.preload import DEFAULT_MODULES

PRELOAD_ENV_VAR = "LLMOPS_WARM_PRELOAD"
_LAUNCHER = Path(__file__).with_name("launcher.py")


def configure(params: Any, head: bool) -> None:
    """Start the keeper and put the launcher in the worker command.

    `params` is ray._private.parameter.RayParams. Without LLMOPS_WARM_DIR nothing is done.
    """
    del head  # Every node has its own.
    begin()
    use_launcher(params)


def begin() -> None:
    """Start the keeper. Without LLMOPS_WARM_DIR nothing is done."""
    root = os.environ.get(DIR_ENV_VAR)
    if not root:
        return
    folder = WarmFolder(Path(root))
    folder.create()
    write_python(folder)
    start_keeper(folder)


def use_launcher(params: Any) -> None:
    """Put the launcher in the worker command. Without LLMOPS_WARM_DIR nothing is done."""
    if os.environ.get(DIR_ENV_VAR):
        params.setup_worker_path = str(_LAUNCHER)


def write_python(folder: WarmFolder) -> None:
    """Write the `python` for jobs' entrypoints: a shell script, as a #! line has a length limit."""
    folder.bin.mkdir(mode=0o700, exist_ok=True)
    python, launcher = shlex.quote(sys.executable), shlex.quote(str(_LAUNCHER))
    text = f'#!/bin/sh\nexec {python} -SIE {launcher} --driver {python} "$@"\n'
    for name in ("python", "python3"):
        script = folder.bin / name
        script.write_text(text)
        script.chmod(0o700)


def start_keeper(folder: WarmFolder) -> None:
    """Start the keeper in a session of its own; it ends when `ray start --block` does."""
    added = os.environ.get(PRELOAD_ENV_VAR, "").split()
    watch = ["--watch", str(os.getpid())] if "--block" in sys.argv else []
    modules = [*DEFAULT_MODULES, *added]
    line = [
        *(sys.executable, "-m", "llmops_kernel.warm.keeper", str(folder.root)),
        *(*watch, "--preload", *modules),
    ]
    env = {key: value for key, value in os.environ.items() if key != "RAY_START_HOOK"}
    folder.write_command(line, env)
    with folder.log.open("ab") as log:
        subprocess.Popen(
            line,
            env=env,
            cwd=folder.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
