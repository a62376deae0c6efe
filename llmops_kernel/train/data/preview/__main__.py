"""The process that looks at data: a job on standard input, JSON lines on standard output.

It ends when standard input is closed: a client that was killed leaves no process behind.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable

from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine


def main() -> int:
    """Do the job; return the exit code."""
    gc.disable()  # A tenth of a short life would go into looking for what is never freed.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries and hooks print to standard output as well.
    job = PreviewJob.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_client, daemon=True).start()

    def progress(text: str) -> None:
        print(PreviewLine(kind="progress", text=text).model_dump_json(), file=lines, flush=True)

    line = _line(job, progress)
    print(line.model_dump_json(), file=lines, flush=True)
    return int(line.kind == "failed")


def _line(job: PreviewJob, progress: Callable[[str], None]) -> PreviewLine:
    try:
        if job.check:
            from llmops_kernel.train.data.check import checked

            return PreviewLine(kind="checked", check=checked(job, progress))
        from llmops_kernel.train.data.preview.work import Preview

        preview = Preview(job, progress)
        if job.row is not None:
            return PreviewLine(kind="row", row=preview.row(job.row))
        return PreviewLine(kind="done", preview=preview.all())
    except LLMOpsError as error:
        return PreviewLine(
            kind="failed",
            text=error.message,
            remedy=error.remedy,
            error=type(error).__name__,
        )
    except Exception as error:
        traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0]
        return PreviewLine(
            kind="failed",
            text=f"The data could not be read: {type(error).__name__}: {first}",
            remedy="set LLMOPS_DEBUG=1 to see the traceback",
            error=DataError.__name__,
        )


def _end_with_client() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # What Python would tidy up here costs a tenth of a second.
