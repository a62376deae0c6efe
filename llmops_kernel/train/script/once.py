"""The driver of a script that is started once: it may be a plain script or use Ray itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver import report
from llmops_kernel.driver.folders import ray_logs
from llmops_kernel.driver.nodes.holds import NodeHolds, only_node
from llmops_kernel.driver.ray_job import add_metadata
from llmops_kernel.metrics.events import EndEvent, FailureEvent
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.store.scratch import scratch_folder
from llmops_kernel.track.session import BOARD_ENV_VAR, SPEC_ENV_VAR, SPEC_METADATA
from llmops_kernel.track.stopping import ASKS, KEPT, STOP, STOPPED, FileBoard
from llmops_kernel.train.script import ends, process
from llmops_kernel.train.script.cluster import ask
from llmops_kernel.train.script.patience import Patience

_POLL_S = 0.02
_SETTINGS = {
    # Read by Ray Train in the script: how often its controller looks whether workers have ended.
    # It needs two looks, so with Ray's default of 2 s a run ends up to 4 s after its last step. A
    # look is one call to each worker.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
}


class OnceDriver:
    """Starts the script in a process of its own, watches it and journals how it ends."""

    def __init__(self, spec: RunSpec, config: ScriptConfig, *, is_warm: bool) -> None:
        self._spec, self._config, self._is_warm = spec, config, is_warm
        self._stop_requested = threading.Event()
        self._has_ended = threading.Event()
        self._forced: EndEvent | None = None
        """How the run ends when the driver has to end the script."""

    def run(self) -> int:
        """Return the driver's exit status."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop_requested.set())
        with scratch_folder("llmops-board") as folder:
            return self._run(FileBoard(folder))

    def _run(self, board: FileBoard) -> int:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        os.environ[SPEC_ENV_VAR] = self._spec.encode()
        os.environ[BOARD_ENV_VAR] = str(board.folder)
        add_metadata(SPEC_METADATA, self._spec.encode())
        pid = process.start(self._config, board=board.folder, is_warm=self._is_warm)
        journal = report.DriverReport(self._spec, logs=ray_logs(Path.cwd()))
        journal.phases_so_far()
        NodeHolds(journal.emit).begin(only_node())
        journal.phase("driver", "end")
        journal.phase("first_step", "begin")
        status = self._wait(pid, board)
        return journal.end(self._end(journal, status, board))

    def _wait(self, pid: int, board: FileBoard) -> int:
        """Return the wait status of the script's process."""
        was_stopped = False
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._has_ended.set()
                return status
            if self._stop_requested.is_set() and not was_stopped:
                was_stopped = True
                board.put(STOP, True)
                threading.Thread(target=self._stop, args=(pid, board), daemon=True).start()
            time.sleep(_POLL_S)

    def _stop(self, pid: int, board: FileBoard) -> None:
        """Pass the request on to workers on the cluster; end a script that does not follow it."""
        patience = Patience.from_env()
        requested_s = time.monotonic()
        print("Stop requested.", flush=True)
        written = ask(self._spec, "stop")
        asks = board.get(ASKS) or written.get(ASKS) or written.get(STOPPED)
        if asks:
            left_s = requested_s + patience.leave_s - time.monotonic()
            if self._has_ended.wait(max(0.0, left_s)):
                return
        self._forced = ends.did_not_leave(patience.leave_s) if asks else ends.ended_at_once()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                os.killpg(pid, signum)
            # The script's own exit handlers end the workers that it has started.
            if self._has_ended.wait(patience.terminate_s):
                return

    def _end(self, journal: report.DriverReport, status: int, board: FileBoard) -> EndEvent:
        if self._forced:
            return self._forced
        if failure := self._failure(status, board):
            return journal.failed([failure])
        if stopped := self._stopped(board):
            return stopped
        return EndEvent(state="SUCCEEDED")

    def _stopped(self, board: FileBoard) -> EndEvent | None:
        if not self._stop_requested.is_set():
            return None
        written = {name: board.get(name) for name in (STOPPED, KEPT)}
        if not written[STOPPED]:
            written = ask(self._spec, "look")
        stopped = written.get(STOPPED)
        return ends.stopped_end(stopped, kept=written.get(KEPT)) if stopped else None

    def _failure(self, status: int, board: FileBoard) -> FailureEvent | None:
        described = board.get(process.FAILURE)
        if described is not None:
            return FailureEvent.model_validate(described)
        script = self._config.script
        if os.WIFSIGNALED(status):
            return ends.signal_failure(os.WTERMSIG(status), script=script)
        code = os.WEXITSTATUS(status)
        return ends.exit_failure(code, script=script) if code else None
