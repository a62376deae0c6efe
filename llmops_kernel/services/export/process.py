"""Runs an export in a process of its own: this one must not import the training stack."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from pydantic import ValidationError

from llmops_kernel import errors
from llmops_kernel.errors import ExportError, LLMOpsError
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.store.export_job import ExportJob, ExportLine

_WORK = "llmops_kernel.export"
"""A string: the module imports torch."""
_END_WITHIN_S = 10.0


def run_job(job: ExportJob, *, progress: Progress | None) -> ExportLine:
    """Do the job and return its last line. Raises ExportError, ModelError or StoreError.

    Ctrl-C ends the process as well.
    """
    with tempfile.TemporaryFile("w+") as log:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the other.
        process = subprocess.Popen(
            [sys.executable, "-m", _WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("LLMOPS_DEBUG") == "1" else log,
            text=True,
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"},
            start_new_session=True,
        )
        try:
            line = _follow(process, job, progress)
            process.wait()
        finally:
            _end(process)
        if line is None:
            raise _death_error(process.returncode, log)
    if line.kind == "failed":
        raise _error(line)
    return line


def _follow(
    process: subprocess.Popen[str], job: ExportJob, progress: Progress | None
) -> ExportLine | None:
    """Pass the job on; return the last line, None if the process ended without one."""
    if process.stdin is None or process.stdout is None:
        return None
    with suppress(BrokenPipeError):
        # Stays open: the process ends when it is closed, also when this one was killed.
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()
    for text in process.stdout:
        with suppress(ValidationError):
            line = ExportLine.model_validate_json(text)
            if line.kind != "progress":
                return line
            if progress is not None:
                progress(line.text)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _death_error(code: int, log: IO[str]) -> ExportError:
    log.seek(0)
    last = (log.read().strip().splitlines() or ["no message"])[-1]
    end = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
    memory = code == -9
    return ExportError(
        f"The process that exports {end}: {last}",
        remedy="free some memory: the whole model is loaded" if memory else "llmops doctor",
    )


def _error(line: ExportLine) -> LLMOpsError:
    kind = getattr(errors, line.error, ExportError)
    error: LLMOpsError = kind(line.text, remedy=line.remedy)
    return error
