"""Stands in for a driver and its worker in tests: writes an output and offers it to clients.

python output_job.py RUN_ID FOLDER NUM_BYTES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.outputs import announced


def main() -> None:
    run_id, folder, num_bytes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # Ray sends a driver's output to a file of its log folder.
    write(run_id, folder, num_bytes, logs=Path(os.readlink("/proc/self/fd/1")).parent)


def write(run_id: str, folder: Path, num_bytes: int, *, logs: Path, kept_at: str = "") -> None:
    journal = logs / "llmops" / run_id
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "adapter.safetensors").write_bytes(os.urandom(num_bytes))
    (folder / "tokenizer/vocab.json").write_text("{}")
    worker = JournalWriter([journal], stream="1-worker-0", attempt=1)
    size = num_bytes + 2
    worker.emit(
        announced(folder, what="adapter", size_bytes=size, journal=journal, kept_at=kept_at)
    )
    driver = JournalWriter([journal], stream="1-driver", attempt=1)
    driver.emit(EndEvent(state="SUCCEEDED"))


if __name__ == "__main__":
    main()
