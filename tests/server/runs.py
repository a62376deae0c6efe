"""Runs in a home of the test, written without a cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from llmops_kernel.metrics.events import EndEvent, OutputEvent, PhaseEvent, StartEvent, StepEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore


def step(number: int, **values: Any) -> StepEvent:
    reported = {"loss": 4.0 / number, "step_time_s": 0.1, "data_wait_s": 0.0, "compute_s": 0.1}
    return StepEvent(
        step=number, tokens=10, tokens_per_second=100.0, mfu=0.4, **(reported | values)
    )


def worker(store: RunStore, run_id: str, *, attempt: int = 1) -> JournalWriter:
    folder = store.folder(run_id).journal
    return JournalWriter([folder], stream=f"{attempt}-worker-1", attempt=attempt)


def make_run(
    store: RunStore,
    run_id: str,
    *,
    steps: int = 0,
    ended: str | None = "SUCCEEDED",
    created_s: float | None = None,
    learning_rate: float = 1e-4,
    **more: Any,
) -> Path:
    """Returns its folder."""
    created_s = time.time() if created_s is None else created_s
    values = {"cluster": "local", "config": {"optimizer": {"learning_rate": learning_rate}}} | more
    record = RunRecord(run_id=run_id, name="toy", created_s=created_s, **values)
    folder = store.create(record, config_yaml=f"optimizer:\n  learning_rate: {learning_rate}\n")
    add_attempt(store, run_id, 1)
    writer = worker(store, run_id)
    facts = {"num_workers": 1, "global_batch_size": 1, "device": "cpu", "dtype": "float32"}
    writer.emit(PhaseEvent(name="driver", state="begin"))
    writer.emit(StartEvent(total_steps=steps or 10, **facts))
    for number in range(1, steps + 1):
        writer.emit(step(number))
    if ended is not None:
        writer.emit(OutputEvent(path=str(folder.output), what="adapter"))
        writer.emit(EndEvent(state=ended, last_step=steps))
    writer.close()
    return folder.root


def add_attempt(store: RunStore, run_id: str, number: int) -> None:
    attempt = Attempt(
        number=number,
        submission_id=f"{run_id}-{number}",
        cluster="local",
        dashboard_url="",
        submitted_s=time.time(),
    )
    store.add_attempt(run_id, attempt)
