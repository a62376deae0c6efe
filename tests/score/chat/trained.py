"""A training run with an output, as its record and journal show it; nothing is trained."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.metrics.events import EndEvent, OutputEvent, PhaseEvent, StepEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore


def add_trained_run(
    store: RunStore,
    output: str | Path | None,
    *,
    run_id: str = "lora-260101-120000-abcd",
    cluster: str = "test",
    model: str = "tiny-llama",
    what: str = "adapter",
    created_s: float = 1.0,
    objective: str = "sft",
    **more: str,
) -> str:
    """Add a run that has ended; without an `output` it has written no model.

    `more` are fields of the output's event.
    """
    record = RunRecord(
        run_id=run_id,
        name="lora",
        created_s=created_s,
        cluster=cluster,
        config={"model": {"id": model}, "objective": {"type": objective}},
    )
    store.create(record, config_yaml=f"model: {model}\n")
    attempt = Attempt(
        number=1, submission_id=f"{run_id}-1", cluster=cluster, dashboard_url="", submitted_s=1.0
    )
    store.add_attempt(run_id, attempt)
    journal = JournalWriter([store.folder(run_id).journal], stream="1-driver", attempt=1)
    journal.emit(PhaseEvent(name="driver", state="begin"))
    journal.emit(StepEvent(step=1, loss=2.0))
    if output is not None:
        journal.emit(OutputEvent(path=str(output), what=what, **more))
    journal.emit(EndEvent(state="SUCCEEDED", last_step=1))
    journal.close()
    return run_id
