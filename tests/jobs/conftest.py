from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.metrics.events import PhaseEvent, StartEvent, StepEvent
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterInfo, Connection
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore

MakeRun = Callable[..., str]


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore()


@pytest.fixture
def make_run(store: RunStore) -> MakeRun:
    """Writes a run that has been handed over, without any cluster; returns its id."""

    def make(run_id: str = "demo-1", **details: Any) -> str:
        make_record(store, run_id, **details)
        return run_id

    return make


def make_record(
    store: RunStore,
    run_id: str,
    *,
    provider: str = "local",
    host: str = socket.gethostname(),
    age_s: float = 0.0,
    handed_over: bool = True,
    num_attempts: int = 1,
) -> None:
    created_s = time.time() - age_s
    record = RunRecord(
        run_id=run_id,
        name="demo",
        created_s=created_s,
        cluster="local",
        provider=provider,
        config={},
        host=host,
    )
    folder = store.create(record, config_yaml="name: demo\n")
    for number in range(1, num_attempts + 1):
        attempt = Attempt(
            number=number,
            submission_id=f"{run_id}-{number}",
            cluster="local",
            dashboard_url="",
            submitted_s=created_s,
        )
        store.add_attempt(run_id, attempt)
    if num_attempts:
        writer = JournalWriter([folder.journal], stream="1-client", attempt=1)
        writer.emit(PhaseEvent(name="pending", state="begin"))
        if handed_over:
            writer.emit(PhaseEvent(name="pending", state="end"))
        writer.close()


@pytest.fixture
def worker(store: RunStore) -> Callable[[str], JournalWriter]:
    """Opens the worker's stream of a run's first attempt."""

    def open_(run_id: str) -> JournalWriter:
        return JournalWriter([store.folder(run_id).journal], stream="1-worker-0", attempt=1)

    return open_


def start(total_steps: int = 100) -> StartEvent:
    return StartEvent(
        total_steps=total_steps,
        num_workers=1,
        global_batch_size=1,
        device="cpu",
        dtype="float32",
    )


def step(number: int) -> StepEvent:
    return StepEvent(
        step=number, loss=1.0, step_time_s=0.1, data_wait_s=0.0, compute_s=0.1, tokens=8
    )


RunJob = Callable[..., str]
JOB_SCRIPT = Path(__file__).with_name("journal_job.py")


@pytest.fixture(scope="session")
def connection(ray_cluster: ClusterInfo) -> Connection:
    """Session-wide, so that it is made before a test moves the home."""
    return LocalProvider().connect(ray_cluster.name)


@pytest.fixture
def client(connection: Connection) -> Iterator[JobsClient]:
    with JobsClient(connection, cluster="test") as client:
        yield client


@pytest.fixture
def run_job(client: JobsClient) -> RunJob:
    """Starts a real job for a run's first attempt; returns its submission id."""

    def run(run_id: str, **details: Any) -> str:
        return start_job(client, run_id, **details)

    return run


def start_job(
    client: JobsClient,
    run_id: str,
    *,
    num_steps: int = 3,
    interval_s: float = 0.0,
    how: str = "end",
    folders: Sequence[Path] = (),
) -> str:
    words = [sys.executable, JOB_SCRIPT, run_id, num_steps, interval_s, how, *folders]
    client.submit(
        entrypoint=shlex.join(map(str, words)),
        submission_id=f"{run_id}-1",
        runtime_env={},
        metadata={"llmops_run": run_id},
    )
    return f"{run_id}-1"


def ended(client: JobsClient, submission_id: str) -> bool:
    job = client.get(submission_id)
    return job is not None and job.is_terminal
