"""A run folder and a workspace, and the driver of a script as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import DRIVER_METADATA, JOB_CONFIG_ENV_VAR, RunSpec
from llmops_kernel.train.script.ends import STOP_WAIT_ENV_VAR


class ScriptRun:
    """One run of a script on this machine, without Ray."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.folder = root / "workspace", RunFolder(root / "run")
        self.workspace.mkdir()
        self.folder.root.mkdir()
        self.folder.record.write_text('{"run_id": "script-1"}')
        self.attempt = 0
        self.output = ""
        self._started: list[subprocess.Popen[str]] = []

    def write(self, text: str, name: str = "train.py") -> None:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def start(
        self,
        *args: str,
        script: str = "train.py",
        python: Sequence[str] = (sys.executable,),
        node_env: Mapping[str, str] | None = None,
        **config: Any,
    ) -> subprocess.Popen[str]:
        """`python`, `node_env`: of the driver; `config`: more fields of the script config."""
        self.attempt += 1
        spec = RunSpec(
            run_id="script-1",
            attempt=self.attempt,
            config=ScriptConfig(script=script, args=args, **config).model_dump(mode="json"),
            run_root=str(self.folder.root),
            submitted_s=time.time(),
        )
        root = Path(__file__).parents[3]
        # As on a cluster that this package has started; Ray's own 3 s are short on a busy machine.
        waits = {STOP_WAIT_ENV_VAR: "120"}
        job = {JOB_CONFIG_ENV_VAR: json.dumps({"metadata": {DRIVER_METADATA: spec.encode()}})}
        own = {"PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
        environment = {**waits, **(node_env or os.environ | own), **job}
        process = subprocess.Popen(
            [*python, "-m", "llmops_kernel.train.script.entrypoint"],
            cwd=self.workspace,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a test that failed has left: it would train on beside all that follow."""
        for process in self._started:
            if process.poll() is None:
                with suppress(psutil.Error):
                    for child in psutil.Process(process.pid).children(recursive=True):
                        child.kill()
                process.kill()
                process.wait()

    def finish(self, process: subprocess.Popen[str]) -> int:
        self.output, _ = process.communicate(timeout=120)
        return process.returncode

    def run(self, *args: str, **options: Any) -> int:
        return self.finish(self.start(*args, **options))

    def events(self, kind: str, attempt: int | None = None) -> list[AnyEvent]:
        """All events of a kind of the newest attempt."""
        wanted = attempt or self.attempt
        found = FolderTail(self.folder.journal).read()
        return [event for event in found if event.kind == kind and event.attempt == wanted]


@pytest.fixture
def script_run(tmp_path: Path) -> Iterator[ScriptRun]:
    with closing(ScriptRun(tmp_path)) as run:
        yield run
