"""Stores with runs that were never trained: records and journals only."""

from __future__ import annotations

from typing import Any

from llmops_kernel.metrics.events import EndEvent, EvalEvent, StartEvent, StepEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

_SHAPE = {"num_workers": 1, "global_batch_size": 8, "device": "cpu", "dtype": "float32"}


def add(
    store: RunStore,
    run_id: str,
    *,
    config: dict[str, Any] | None = None,
    loss: float | None = 0.5,
    eval_loss: float | None = None,
    state: str | None = "SUCCEEDED",
    **record: Any,
) -> JournalWriter | None:
    """Add a run; without a `state` it is still running, and its writer is returned."""
    known = {"name": run_id.split("-")[0], "created_s": 1.0, "cluster": "local"} | record
    folder = store.create(RunRecord(run_id=run_id, config=config or {}, **known), config_yaml="")
    out = JournalWriter([folder.journal], stream="1-worker-1", attempt=1)
    out.emit(StartEvent(total_steps=10, **_SHAPE))
    out.emit(StepEvent(step=1, loss=loss, step_time_s=0.1))
    if eval_loss is not None:
        metrics = {"eval_loss": eval_loss}
        out.emit(EvalEvent(step=1, metrics=metrics, num_rows=4, duration_s=1))
    if state is None:
        return out
    out.emit(EndEvent(state=state))
    out.close()
    return None
