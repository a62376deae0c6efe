"""The driver of a script that is started once: it may be a plain script or use Ray itself."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver import report
from llmops_kernel.driver.nodes import NodeHolds, only_node, use_all_cores
from llmops_kernel.driver.ray_job import add_metadata
from llmops_kernel.driver.run_metrics import FollowedJournal
from llmops_kernel.driver.storage import ray_logs, run_folder
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.metrics.events import EndEvent, FailureEvent
from llmops_kernel.store.files import scratch_folder
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.session import BOARD_ENV_VAR, SPEC_ENV_VAR, SPEC_METADATA
from llmops_kernel.track.stopping import ASKS, KEPT, STOP, STOPPED, FileBoard
from llmops_kernel.train.script import ends
from llmops_kernel.train.script.cluster import ask
from llmops_kernel.train.script.ends import Patience
from llmops_kernel.train.script.program import run_program

_POLL_S = 0.02
_LOOK_S = 0.5
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
        self._watch: RunWatch | None = None
        self._forced: EndEvent | None = None
        """End of the run when the driver has to end the script."""

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
        pid = start(self._config, board=board.folder, is_warm=self._is_warm)
        journal = report.DriverReport(self._spec, logs=ray_logs(Path.cwd()))
        journal.phases_so_far()
        NodeHolds(journal.emit).begin(only_node())
        journal.phase("driver", "end")
        journal.phase("first_step", "begin")
        watch = self._watch = RunWatch(
            journal.emit,
            self._spec,
            self._config.monitor,
            folder=run_folder(self._spec).root,
            learns_pauses=True,
        )
        watch.begin()
        metrics = FollowedJournal(self._spec, journal.folder, connect=self._connect)
        status = self._wait(pid, board, metrics)
        watch.end()
        return journal.end(self._end(journal, status, board))

    def _connect(self) -> None:
        """Connect to Ray, for metrics only: nothing else here needs it.

        Raises KeyError where no cluster has started this process: Ray would start one.
        """
        address = os.environ["RAY_ADDRESS"]
        import ray

        # ray.init installs a handler that exits at once: a stop meanwhile waits for ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        finally:
            signal.signal(signal.SIGTERM, lambda *_: self._stop_requested.set())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _wait(self, pid: int, board: FileBoard, metrics: FollowedJournal) -> int:
        """Return the wait status of the script's process."""
        was_stopped = False
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._has_ended.set()
                metrics.look(is_last=True)
                return status
            if self._stop_requested.is_set() and not was_stopped:
                was_stopped = True
                board.put(STOP, True)
                threading.Thread(target=self._stop, args=(pid, board), daemon=True).start()
            metrics.look()
            time.sleep(_POLL_S)

    def _stop(self, pid: int, board: FileBoard) -> None:
        """Pass the request on to workers on the cluster; end a script that does not follow it."""
        patience = Patience.from_env()
        requested_s = time.monotonic()
        print("Stop requested.", flush=True)
        answers = ask(self._spec, "stop")
        asks = board.get(ASKS) or answers.get(ASKS) or answers.get(STOPPED)
        if asks:
            until_s = requested_s + patience.leave_s
            while time.monotonic() < until_s and not self._is_stalled:
                if self._has_ended.wait(min(_LOOK_S, max(0.0, until_s - time.monotonic()))):
                    return
        self._forced = ends.did_not_leave(patience.leave_s) if asks else ends.ended_at_once()
        if self._is_stalled:
            self._forced = ends.ended_stalled(self._spec.run_id)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                os.killpg(pid, signum)
            # The script's own exit handlers end the workers that it has started.
            if self._has_ended.wait(patience.terminate_s):
                return

    @property
    def _is_stalled(self) -> bool:
        return self._watch is not None and self._watch.is_stalled

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
        answers = {name: board.get(name) for name in (STOPPED, KEPT)}
        if not answers[STOPPED]:
            answers = ask(self._spec, "look")
        stopped = answers.get(STOPPED)
        return ends.stopped_end(stopped, newest=answers.get(KEPT)) if stopped else None

    def _failure(self, status: int, board: FileBoard) -> FailureEvent | None:
        described = board.get(FAILURE)
        if described is not None:
            return FailureEvent.model_validate(described)
        script = self._config.script
        if os.WIFSIGNALED(status):
            return ends.signal_failure(os.WTERMSIG(status), script=script)
        code = os.WEXITSTATUS(status)
        return ends.exit_failure(code, script=script) if code else None


# --- Process of a script that is started once ---
# A process of its own, because the driver has to outlive whatever the script does: `ray.init`
# replaces its signal handlers, `os._exit` and a crash leave nothing behind to report the end.


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
