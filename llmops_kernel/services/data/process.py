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
from contextlib import suppress
from importlib.util import find_spec
from typing import IO

from pydantic import ValidationError

from llmops_kernel import errors
from llmops_kernel.errors import DataError, HookError, LLMOpsError, MissingDependencyError
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine

_WORK = "llmops_kernel.train.data.preview"
"""A string: the module imports the tokenizer's library."""
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def run_job(job: PreviewJob, *, timeout_s: float) -> PreviewLine:
    """Do the job and return its line. Raises the error that it failed with.

    The process is ended with all that it started: after `timeout_s`, and by Ctrl-C.
    """
    line = _run(job.model_copy(update={"light": True}), timeout_s)
    if line.kind == "failed" and line.error == HookError.__name__:
        # A hook that asks Transformers for models needs torch, which only costs time.
        line = _run(job, timeout_s)
    if line.kind == "failed":
        raise _error(line)
    return line


def _run(job: PreviewJob, timeout_s: float) -> PreviewLine:
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
        try:
            line = _ask(process, job)
        finally:
            timer.cancel()
            _kill(process)
            _close(process)
        if line is None:
            raise _too_slow(timeout_s) if late.is_set() else _died(process.returncode, log)
    return line


def _ask(process: subprocess.Popen[str], job: PreviewJob) -> PreviewLine | None:
    """Return the answer; None if the process ended without one."""
    if process.stdin is None or process.stdout is None:
        return None
    with suppress(BrokenPipeError):
        # Stays open: the process ends when it is closed, also when this one was killed.
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()
    with suppress(ValidationError):
        answer = PreviewLine.model_validate_json(process.stdout.readline())
        process.wait()
        return answer
    process.wait()
    return None


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


def _too_slow(timeout_s: float) -> DataError:
    return DataError(
        f"The data was not read and tokenised within {timeout_s:g} s.",
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
