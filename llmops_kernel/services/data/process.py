"""Looks at data in a process of its own: this one must not import the training stack.

A slow tokenizer or hook never blocks a server, and hooks of the user cannot change this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import IO

from pydantic import ValidationError

from llmops_kernel import errors
from llmops_kernel.errors import DataError, LLMOpsError, MissingDependencyError
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine

_WORK = "llmops_kernel.train.data.preview"
"""A string: the module imports the tokenizer's library."""
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


class Stop:
    """Ends a job from another thread, also one that has not begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            if self._process is not None:
                _kill(self._process)

    def watch(self, process: subprocess.Popen[str] | None) -> None:
        """End this process when it is set; None: there is none any more."""
        with self._lock:
            self._process = process
            if self._is_set and process is not None:
                _kill(process)


class StoppedError(DataError):
    """Nobody waits for the answer any more."""


def run_job(
    job: PreviewJob,
    *,
    timeout_s: float,
    progress: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
) -> PreviewLine:
    """Do the job and return its last line. Raises the error that it failed with.

    The process is ended with all that it started: after `timeout_s`, by Ctrl-C, and by `stop`.
    `progress` is told what it begins.
    """
    stop = stop or Stop()
    line = _run(job.model_copy(update={"light": True}), timeout_s, progress, stop)
    if line.needs_torch:
        # A hook asks Transformers for models: that only costs time.
        line = _run(job, timeout_s, progress, stop)
    if line.kind == "failed":
        raise _error(line)
    return line


def _run(
    job: PreviewJob, timeout_s: float, progress: Callable[[str], None], stop: Stop
) -> PreviewLine:
    if stop.is_set:
        raise _stopped()
    if find_spec("transformers") is None:
        raise MissingDependencyError(
            "The tokenizer needs transformers, which is not installed here.",
            remedy='pip install "llmops-kernel[train]"',
        )
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("LLMOPS_DEBUG") == "1" else log,
            text=True,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        )
        late = threading.Event()
        timer = threading.Timer(timeout_s, _end_late, (process, late))
        timer.start()
        stop.watch(process)
        try:
            line, doing = _ask(process, job, progress)
        finally:
            timer.cancel()
            stop.watch(None)
            _kill(process)
            _close(process)
        if line is not None:
            return line
        if stop.is_set:
            raise _stopped()
        raise _too_slow(timeout_s, doing) if late.is_set() else _died(process.returncode, log)


def _ask(
    process: subprocess.Popen[str], job: PreviewJob, progress: Callable[[str], None]
) -> tuple[PreviewLine | None, str]:
    """Return the answer, None if the process ended without one; and what it was doing last."""
    doing = ""
    if process.stdin is None or process.stdout is None:
        return None, doing
    with suppress(BrokenPipeError):
        # Stays open: the process ends when it is closed, also when this one was killed.
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()
    with suppress(ValidationError):
        while (answer := _line(process.stdout)).kind == "progress":
            doing = answer.text
            progress(doing)
        process.wait()
        return answer, doing
    process.wait()
    return None, doing


def _line(output: IO[str]) -> PreviewLine:
    return PreviewLine.model_validate_json(output.readline())


def _end_late(process: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process and those that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _close(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _stopped() -> StoppedError:
    return StoppedError(
        "A newer request for the same config has taken the place of this one.",
        remedy="see its answer, or ask again",
    )


def _too_slow(timeout_s: float, doing: str) -> DataError:
    last = f" Last: {doing[:1].lower()}{doing[1:]}." if doing else ""
    return DataError(
        f"The data was not read and tokenised within {timeout_s:g} s.{last}",
        remedy="look at fewer rows (`llmops data CONFIG --rows 200`); a hub id or a URL may be"
        " slow to reach, and so may format_example of the hooks file",
    )


def _died(code: int, log: IO[str]) -> DataError:
    log.seek(0)
    last = (log.read().strip().splitlines() or ["no message"])[-1]
    how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
    return DataError(
        f"The process that reads the data {how}: {last}",
        remedy="free some memory, or look at fewer rows" if code == -9 else "llmops doctor",
    )


def _error(line: PreviewLine) -> LLMOpsError:
    kind = getattr(errors, line.error, DataError)
    found: LLMOpsError = kind(line.text, remedy=line.remedy)
    return found
