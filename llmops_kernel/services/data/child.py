"""The process that looks at data: how it starts, and how it ends with all that it has started.

Imports little: the command line starts it before anything else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO

_WORK = "llmops_kernel.train.data.preview"
"""A string: the module imports the tokenizer's library."""
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


class Child:
    """One process, which does one job. Its imports begin at once, unless `ahead` is False."""

    def __init__(self, *, ahead: bool = True) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # open as long as it
        self.process = subprocess.Popen(
            [sys.executable, "-m", _WORK, *(["--ahead"] if ahead else [])],
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


Start = Callable[[], Child]


def new_child() -> Child:
    """Start a process for a job that is known already."""
    return Child(ahead=False)
