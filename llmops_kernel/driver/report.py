"""A driver's entries in the journal: the start-up so far, the processes, failures and the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from llmops_kernel.driver.nodes import driver_times
from llmops_kernel.driver.storage import (
    journal_folders,
    offers_to_clients,
    open_bucket,
    open_journal,
    storage_folder,
    visible_journal,
)
from llmops_kernel.errors import LLMOpsError, StoreError
from llmops_kernel.hardware.priority import set_session_niceness
from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    Event,
    FailureEvent,
    PhaseEvent,
    ProcessEvent,
    ProgressEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.outputs import announced
from llmops_kernel.store.package.assets import covers, how
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import JOB_CONFIG_ENV_VAR, RunSpec, shares_run_folder
from llmops_kernel.store.run_lines import RunLines
from llmops_kernel.warm.for_jobs import start_report

BEGAN_ENV_VAR = "LLMOPS_DRIVER_BEGAN_S"
"""When the driver's own work began, where something came before it."""

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_FILE = re.compile(r"No such file or directory: '([^']+)'")
_PACKAGE_OF = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "flash_attn": "flash-attn",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}
"""Packages that are called otherwise than their module."""


class DriverReport:
    """The driver's stream of the journal."""

    def __init__(self, spec: RunSpec, *, logs: Path | None) -> None:
        """Set up the report. `logs`: Ray's log folder of this node."""
        self._spec, self._logs = spec, logs
        self._journal = open_journal(spec, "driver", logs=logs)
        self._lines = RunLines()
        target = visible_journal(spec, logs=logs)
        # In the background: the start must not wait for the storage.
        self._recall = threading.Thread(target=recall, args=(spec, target), daemon=True)
        self._recall.start()
        self._trackers = Trackers(spec, logs=logs, warn=self.warn)

    @property
    def folder(self) -> Path:
        """The journal's folder on this node."""
        return self._journal.paths[0].parent

    def emit(self, event: Event) -> None:
        self._journal.emit(event)
        self._lines.take(event)

    def phase(
        self, name: str, state: Literal["begin", "end"], *, time_s: float = 0.0, detail: str = ""
    ) -> None:
        self.emit(PhaseEvent(name=name, state=state, time_s=time_s, detail=detail))

    def phases_so_far(self) -> None:
        """Report when the job's supervisor and this driver were started."""
        born_s, parent_s = driver_times()
        if parent_s is not None:
            # Ray may use an idle process that is older than the run.
            parent_s = born_s if parent_s < self._spec.submitted_s else parent_s
            self.phase("runtime_env", "end", time_s=parent_s)
            self.phase("supervisor", "begin", time_s=parent_s)
            self.phase("supervisor", "end", time_s=born_s)
        self.phase("driver", "begin", time_s=float(os.environ.get(BEGAN_ENV_VAR) or born_s))
        self._trackers.begin()
        warm, reason = start_report()
        self.emit(ProcessEvent(role="driver", warm=warm, reason=reason))

    def warn(self, message: str, remedy: str = "") -> None:
        self.emit(WarningEvent(message=message, remedy=remedy))

    def wrote(self, folder: Path, *, what: str, size_bytes: int | None) -> None:
        """Journal an output in the run's own folder, which may be on this node only."""
        journal = offers_to_clients(self._spec, logs=self._logs)
        kept_at = str(folder) if storage_folder(self._spec.run_id) else ""
        self.emit(
            announced(folder, what=what, size_bytes=size_bytes, journal=journal, kept_at=kept_at)
        )

    def failed(self, failures: list[FailureEvent]) -> EndEvent:
        """Journal each failure; return the end that names the first."""
        failures = [with_remedy(failure, self._spec) for failure in failures]
        for failure in failures:
            self.emit(failure)
        first = failures[0]
        location = f" ({first.file}:{first.line})" if first.file and first.line else ""
        message = (
            first.message if location and first.file in first.message else first.message + location
        )
        return EndEvent(state="FAILED", message=message, remedy=first.remedy)

    def end(self, event: EndEvent, *, others: Sequence[str] = ()) -> int:
        """Journal the end; return the driver's exit status.

        `others`: streams of other processes on this node that are stored with the driver's.
        """
        self.emit(event)
        print(f"{event.state}: {event.message}" if event.message else event.state, flush=True)
        own_paths = self._journal.paths[:1]
        names = [f"{self._spec.attempt}-{stream}.jsonl" for stream in others]
        store(
            self._spec,
            [*own_paths, *(path.with_name(name) for path in own_paths for name in names)],
        )
        self._trackers.end()
        self._journal.close()
        self._recall.join(RECALL_S)
        return 1 if event.state == "FAILED" else 0


def with_remedy(failure: FailureEvent, spec: RunSpec) -> FailureEvent:
    """Return the failure with what to do about a module or a file that is not there.

    An error of a hook says already where it was raised, which is no help with a missing module.
    """
    if failure.remedy and failure.error != "HookError":
        return failure
    remedy = ""
    if failure.error in ("ModuleNotFoundError", "HookError") and (
        match := _NO_MODULE.search(failure.message)
    ):
        remedy = _about_module(match[1], spec)
    elif failure.error == "FileNotFoundError" and (match := _NO_FILE.search(failure.message)):
        path = os.path.relpath(match[1], Path.cwd()) if os.path.isabs(match[1]) else match[1]
        if ignored := covers(spec.ignored, os.path.normpath(path)):
            remedy = (
                f"{ignored} is in your workspace, but an ignore file kept it at home. {how(path)}"
            )
    return failure.model_copy(update={"remedy": remedy}) if remedy else failure


def _about_module(name: str, spec: RunSpec) -> str:
    top = name.partition(".")[0]
    for path in (f"{name.replace('.', '/')}.py", f"{top}.py", top):
        if ignored := covers(spec.ignored, path):
            return (
                f"{ignored} is in your workspace, but an ignore file kept it at home."
                f" {how(ignored)}"
            )
    package = _PACKAGE_OF.get(top, top.replace("_", "-"))
    return (
        f"give the run the package: `packages: [{package}]` in its config, or"
        f" `llmops submit ... --package {package}`; a module of your own must be in the workspace"
    )


def failure_of(error: Exception, *, remedy: str) -> FailureEvent:
    """Return an error as an event; one that is none of ours gets `remedy` and its traceback."""
    if isinstance(error, LLMOpsError):
        return FailureEvent(error=type(error).__name__, message=error.message, remedy=error.remedy)
    failure = FailureEvent(
        error=type(error).__name__,
        message=f"{type(error).__name__}: {error}",
        remedy=remedy,
        traceback="".join(traceback.format_exception(error)),
    )
    print_traceback(failure)
    return failure


def print_traceback(failure: FailureEvent) -> None:
    if failure.traceback:
        print(failure.traceback, file=sys.stderr, flush=True)


# --- The process that reports to trackers ---


_LOOK_S = 0.5
_MOST_STARTS = 5
PYTHON_ENV_VAR = "LLMOPS_TRACKERS_PYTHON"
"""A Python with the trackers' packages, where they do not fit beside those of the training."""
_NICENESS = 5
"""A third of the share of the training, of a core that both want."""
_NOT_PASSED = (JOB_CONFIG_ENV_VAR, "PYTHONSTARTUP")
"""The first one is the mark of a run's own processes, which are waited for."""


class Trackers:
    """Starts the process that sends the journal to the trackers of `report_to`.

    After the first result, so that the start of the run does not pay for it; once more where it was
    killed. It is in a session of its own, and ends one to five minutes after this process at the
    latest.
    """

    def __init__(
        self, spec: RunSpec, *, logs: Path | None, warn: Callable[[str, str], None]
    ) -> None:
        self._spec, self._logs, self._warn = spec, logs, warn
        self._names = tuple(dict.fromkeys(spec.config.get("report_to") or ()))
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to look for the first result, in a thread."""
        folders = journal_folders(self._spec, logs=self._logs) if self._names else []
        if not folders:
            self._names = ()  # Nothing of this node's journal can be read.
        else:
            threading.Thread(target=self._watch, args=(folders[0],), daemon=True).start()

    def end(self) -> None:
        """Have the process send the end too, also of a run without a result."""
        if self._names:
            self._start()

    def _watch(self, journal: Path) -> None:
        tail = FolderTail(journal)
        while not any(isinstance(event, _RESULTS) for event in tail.read()):
            time.sleep(_LOOK_S)
        for number in range(_MOST_STARTS):
            self._start()
            if self._process is None or self._process.wait() == 0:
                return
            time.sleep(_LOOK_S * 2**number)

    def _start(self) -> None:
        with self._lock:
            # One that has exited with 0 had nothing left to do.
            if self._process is not None and not self._process.poll():
                return
            names = self._names
            try:
                self._process = start_forwarder(self._spec, names, logs=self._logs)
            except OSError as error:
                self._names = ()
                self._warn(
                    f"Nothing is sent to {', '.join(names)}: {error}",
                    f"correct {PYTHON_ENV_VAR} in the cluster template, if it is set;"
                    f" `llmops report {self._spec.run_id}` sends it from your machine",
                )


_RESULTS = (StepEvent, EvalEvent, ProgressEvent)


def start_forwarder(
    spec: RunSpec, names: tuple[str, ...], *, logs: Path | None
) -> subprocess.Popen[bytes]:
    """Start `trackers.process` for this process's run. Raises OSError."""
    from llmops_kernel.trackers.process import Job

    folders = journal_folders(spec, logs=logs)
    stored, is_shared = storage_folder(spec.run_id), shares_run_folder(spec)
    root = Path(spec.run_root) if is_shared else stored
    own_folder = folders[0] / "trackers" if root is None else RunFolder(root).trackers
    # Of the client's run folder that is LLMOPS_HOME, else the folder of the run storage.
    home = root.parents[1] if is_shared and root else stored.parent if stored else None
    job = Job(
        spec=spec.encode(),
        trackers=names,
        journal=str(folders[0]),
        writes_to=tuple(map(str, folders)),
        folder=str(own_folder),
        home=None if home is None else str(home),
        run_folder=spec.run_root if is_shared else None,
        sees_all=root is not None,
        driver=os.getpid(),
    )
    env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    python = os.environ.get(PYTHON_ENV_VAR)
    package = str(Path(__file__).parents[2])
    env |= {
        "PYTHONPATH": package if python else os.pathsep.join(path for path in sys.path if path),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [python or sys.executable, "-m", "llmops_kernel.trackers.process"],
        env=env,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    set_session_niceness(process.pid, _NICENESS)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(job.model_dump_json().encode())
    return process


# --- Copies of the journal in the run's storage ---


RECALL_S = 10.0
"""Seconds that a driver that has ended waits until earlier attempts' journals are copied."""


def recall(spec: RunSpec, target: Path | None) -> None:
    """Copy journals of earlier attempts, whose nodes are gone, to where the client can read them.

    That is `target`. Followers add the lines that they had not fetched before the cluster was lost.
    """
    if target is None or spec.attempt < 2:
        return
    with suppress(StoreError, OSError):
        for name, data in _stored(spec).items():
            path = target / name
            if _attempt(name) < spec.attempt and not path.exists():
                target.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".part")
                scratch.write_bytes(data)
                scratch.rename(path)


def store(spec: RunSpec, files: list[Path]) -> None:
    """Copy the driver's journal at its end; the workers have copied theirs."""
    with suppress(StoreError, OSError):
        if bucket := open_bucket(spec.run_id):
            bucket.put_files([file for file in files if file.exists()], "journal")


def _stored(spec: RunSpec) -> dict[str, bytes]:
    if bucket := open_bucket(spec.run_id):
        return bucket.journal()
    shared = storage_folder(spec.run_id)
    if shared is None:
        return {}
    return {path.name: path.read_bytes() for path in RunFolder(shared).journal.glob("*.jsonl")}


def _attempt(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0
