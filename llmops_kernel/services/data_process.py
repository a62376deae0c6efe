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


class Child:
    """A process that does one job."""

    def __init__(self) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as it
        self.process = subprocess.Popen(
            [sys.executable, "-m", _WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("LLMOPS_DEBUG") == "1" else self._log,
            text=True,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process and those that it started."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def last_words(self) -> str:
        """Return the last line that it, or a library of it, has written."""
        self._log.seek(0)
        return (self._log.read().strip().splitlines() or ["no message"])[-1]

    def close(self) -> None:
        """End it, and give back its files."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class Stop:
    """Ends a job from another thread, also one that has not begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._is_set = False

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            if self._child is not None:
                self._child.kill()

    def watch(self, child: Child | None) -> None:
        """End this process when it is set; None: there is none any more."""
        with self._lock:
            self._child = child
            if self._is_set and child is not None:
                child.kill()


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
    `progress` gets what it begins.
    """
    line = _run(job, timeout_s, progress, stop or Stop())
    if line.kind == "failed":
        raise _error(line)
    return line


def _run(
    job: PreviewJob, timeout_s: float, progress: Callable[[str], None], stop: Stop
) -> PreviewLine:
    if stop.is_set:
        raise _stop_error()
    if find_spec("transformers") is None:
        raise MissingDependencyError(
            "The tokenizer needs transformers, which is not installed here.",
            remedy='pip install "llmops-kernel[train]"',
        )
    child, late = Child(), threading.Event()
    timer = threading.Timer(timeout_s, _end_at_deadline, (child, late))
    timer.start()
    try:
        stop.watch(child)
        line, step = _ask(child.process, job, progress)
        if line is not None:
            return line
        if stop.is_set:
            raise _stop_error()
        raise _too_slow(timeout_s, step) if late.is_set() else _death_error(child)
    finally:
        timer.cancel()
        stop.watch(None)
        child.close()


def _ask(
    process: subprocess.Popen[str], job: PreviewJob, progress: Callable[[str], None]
) -> tuple[PreviewLine | None, str]:
    """Return the answer, None if the process ended without one; and what it was doing last."""
    step = ""
    if process.stdin is None or process.stdout is None:
        return None, step
    with suppress(BrokenPipeError):
        # Stays open: the process ends when it is closed, also when this one was killed.
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()
    with suppress(ValidationError):
        while (answer := _line(process.stdout)).kind == "progress":
            step = answer.text
            progress(step)
        process.wait()
        return answer, step
    process.wait()
    return None, step


def _line(output: IO[str]) -> PreviewLine:
    return PreviewLine.model_validate_json(output.readline())


def _end_at_deadline(child: Child, late: threading.Event) -> None:
    late.set()
    child.kill()


def _stop_error() -> StoppedError:
    return StoppedError(
        "A newer request for the same config replaced this one.",
        remedy="see its answer, or ask again",
    )


def _too_slow(timeout_s: float, step: str) -> DataError:
    last = f" Last: {step[:1].lower()}{step[1:]}." if step else ""
    return DataError(
        f"The data was not read and tokenised within {timeout_s:g} s.{last}",
        remedy="look at fewer rows (`--rows 200` of `llmops data`), or try again when"
        " this machine is less busy; a hub id or a URL may be slow to reach, and so may"
        " format_example of the hooks file",
    )


def _death_error(child: Child) -> DataError:
    code, last = child.process.returncode, child.last_words()
    end = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
    return DataError(
        f"The process that reads the data {end}: {last}",
        remedy="free some memory, or look at fewer rows" if code == -9 else "llmops doctor",
    )


def _error(line: PreviewLine) -> LLMOpsError:
    kind = getattr(errors, line.error, DataError)
    error: LLMOpsError = kind(line.text, remedy=line.remedy)
    return error
