"""The process that does an export: a job on standard input, a JSON line a step on standard output.

It ends when standard input is closed: a client that was killed leaves no process behind.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
from pathlib import Path

from llmops_kernel.driver.disk import is_disk_full
from llmops_kernel.errors import ExportError, LLMOpsError
from llmops_kernel.store.export_job import ExportJob, ExportLine


def main() -> int:
    """Do the job; return the exit code."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print to standard output as well.

    def emit(line: ExportLine) -> None:
        print(line.model_dump_json(), file=lines, flush=True)

    job = ExportJob.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_client, args=(Path(job.folder),), daemon=True).start()
    try:
        from llmops_kernel.export.work import run

        emit(run(job, lambda text: emit(ExportLine(kind="progress", text=text))))
    except LLMOpsError as error:
        name = type(error).__name__
        emit(ExportLine(kind="failed", text=error.message, remedy=error.remedy, error=name))
        return 1
    except Exception as error:
        traceback.print_exc()
        emit(_unexpected(error, job))
        return 1
    return 0


def _end_with_client(scratch: Path) -> None:
    sys.stdin.read()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def _unexpected(error: Exception, job: ExportJob) -> ExportLine:
    if is_disk_full(error):
        return ExportLine(
            kind="failed",
            text=f"The disk of {Path(job.final).parent} is full; nothing was left there.",
            remedy="free some space, or choose a folder on another disk with --path",
            error=ExportError.__name__,
        )
    first = (str(error).strip().splitlines() or [""])[0]
    return ExportLine(
        kind="failed",
        text=f"The export failed: {type(error).__name__}: {first}",
        remedy="LLMOPS_DEBUG=1 shows the traceback: set it and export again",
        error=ExportError.__name__,
    )


if __name__ == "__main__":
    sys.exit(main())
