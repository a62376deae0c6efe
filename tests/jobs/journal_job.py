"""Stands in for a driver in tests: journals steps below Ray's log folder, as a worker does.

python journal_job.py RUN_ID NUM_STEPS INTERVAL_S [end|hang|kill] [FOLDER...]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from llmops_kernel.metrics.events import EndEvent, StepEvent
from llmops_kernel.store.journal.journal import JournalWriter


def main() -> None:
    run_id, num_steps, interval_s, how, *folders = sys.argv[1:]
    # Ray sends a driver's output to a file of its log folder.
    logs = Path(os.readlink("/proc/self/fd/1")).parent
    places = [logs / "llmops" / run_id, *(Path(folder) for folder in folders)]
    worker = JournalWriter(places, stream="1-worker-0", attempt=1)
    for number in range(1, int(num_steps) + 1):
        worker.emit(
            StepEvent(
                step=number, loss=1.0, step_time_s=0.1, data_wait_s=0, compute_s=0.1, tokens=1
            )
        )
        print("step", number, flush=True)
        time.sleep(float(interval_s))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)
    driver = JournalWriter(places, stream="1-driver", attempt=1)
    driver.emit(EndEvent(state="SUCCEEDED", last_step=int(num_steps)))


if __name__ == "__main__":
    main()
