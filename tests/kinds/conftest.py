"""A store with runs of two kinds: one that trains and one that only a test has registered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.metrics.events import PhaseEvent, ProgressEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.kinds.toy import registered
from tests.store.events import start, steps


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """Every test here has one."""


@pytest.fixture
def toy() -> Iterator[None]:
    with registered():
        yield


def add_run(store: RunStore, run_id: str, **fields: object) -> JournalWriter:
    values = {"name": "n", "created_s": 1.0, "cluster": "local", "config": {"folder": "docs"}}
    record = RunRecord.model_validate({"run_id": run_id, **values, **fields})
    store.create(record, config_yaml="folder: docs\n")
    return JournalWriter([store.folder(run_id).journal], stream="1-driver", attempt=1)


def add_index_run(store: RunStore, run_id: str = "index-1") -> str:
    journal = add_run(store, run_id, kind="index", created_s=2.0)
    journal.emit(PhaseEvent(name="driver", state="begin", time_s=10.0))
    journal.emit(PhaseEvent(name="driver", state="end", time_s=11.0))
    journal.emit(PhaseEvent(name="open_index", state="begin", time_s=11.0))
    for number in range(1, 5):
        values = {"documents_per_second": 40.0 * number, "misses": 10.0 / number}
        event = ProgressEvent(done=25 * number, total=200, unit="documents", values=values)
        journal.emit(event.model_copy(update={"time_s": 20.0 + number}))
    return run_id


def add_training_run(store: RunStore, run_id: str = "lora-1") -> str:
    add_run(store, run_id)
    journal = JournalWriter([store.folder(run_id).journal], stream="1-worker-1", attempt=1)
    for event in (start(), *steps(1, 3)):
        journal.emit(event)
    return run_id
