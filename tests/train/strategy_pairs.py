"""Trainings of two processes at a time, without Ray, for the tests of strategies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.compiled_ops import own_ops_folder
from llmops_kernel.store.journal.journal import FolderTail
from tests.train.conftest import PEAK_TFLOPS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compiled_ops() -> dict[str, str]:
    """Variables with which a process uses the operations that this session has compiled.

    With another release of ninja than Ray's workers find, each would compile them all again.
    """
    return {
        "TORCH_EXTENSIONS_DIR": str(own_ops_folder(Path(os.environ["LLMOPS_CACHE"]))),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


class Pairs:
    """Trains with two processes at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def train(self, config: Any, folder: Path, workspace: Path) -> tuple[str, list[float]]:
        """Return the wrapped model's class and the loss of each step."""
        events = self.events(config, folder, workspace)
        engine = next(event.engine for event in events if event.kind == "start")
        return engine, [event.loss or 0.0 for event in events if event.kind == "step"]

    def events(self, config: Any, folder: Path, workspace: Path) -> list[AnyEvent]:
        """Train, and return the journal."""
        codes = self.run(config, folder, workspace)
        assert codes == [0, 0], (folder / "0.log").read_text()[-3000:]
        return FolderTail(folder / "journal").read()

    def run(
        self,
        config: Any,
        folder: Path,
        workspace: Path,
        *,
        env: dict[str, str] | None = None,
        attempt: int = 1,
    ) -> list[int]:
        """Return the exit codes. `<rank>.log` has what the processes printed."""
        spec = {
            "config": config.model_dump(mode="json"),
            "folder": str(folder),
            "workspace": str(workspace),
            "attempt": attempt,
        }
        folder.mkdir(exist_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"spec": spec, "env": {"MASTER_PORT": str(free_port()), **(env or {})}}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._process.stdout.readline())
        assert isinstance(codes, list)
        return codes


@contextmanager
def open_pairs() -> Iterator[Pairs]:
    """Start the process that pairs are forked from; end it and what a failed test left running."""
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "LLMOPS_PEAK_TFLOPS": PEAK_TFLOPS,
        **compiled_ops(),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.train.strategy_worker"],
        env={**os.environ, **shared},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield Pairs(process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
