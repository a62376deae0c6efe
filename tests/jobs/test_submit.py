from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from llmops_kernel.errors import (
    ClusterUnreachableError,
    ConfigError,
    RunStateError,
    SubmissionError,
)
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.control import retry_run
from llmops_kernel.jobs.submit import Submission, check_waiting, entrypoint_of, submit_run
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import EndEvent, PhaseEvent
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Connection
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import DRIVER_METADATA, RunSpec
from llmops_kernel.store.store import RunStore
from tests.configs import training_config_from_dict
from tests.jobs.conftest import ended
from tests.messages import missing
from tests.waiting import until

ROW = '{"text": "a row"}\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "rows.jsonl").write_text(ROW * 3000)
    (folder / "hooks.py").write_text("def format_example(row):\n    return row\n")
    return folder


@pytest.fixture
def nobody() -> JobsClient:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    return JobsClient(Connection(dashboard_url=url), cluster="local")


def submission(workspace: Path, *, parent: str | None = None, **changes: object) -> Submission:
    data = {"model": "tiny-llama", "data": "rows.jsonl", "hooks": {"file": "hooks.py"}}
    config = training_config_from_dict({**data, **changes})
    return Submission(kind=kind_named("train"), config=config, workspace=workspace, parent=parent)


def info(connection: Connection | None = None) -> ClusterInfo:
    url = connection.dashboard_url if connection else None
    return ClusterInfo(name="test", provider="local", state=ClusterState.READY, dashboard_url=url)


def left_behind(store: RunStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file() and "sqlite" not in path.name]


def test_a_broken_file_stops_the_submission_before_anything_is_written(store, workspace, nobody):
    (workspace / "rows.jsonl").write_text(ROW + "{broken\n")
    (workspace / "hooks.py").write_text("def format_example(row)\n")
    with pytest.raises(ConfigError) as caught:
        submit_run(submission(workspace), store=store, cluster=info(), client=nobody)
    assert "rows.jsonl" in caught.value.message
    assert "hooks.py" in caught.value.message
    assert left_behind(store) == []


def test_a_cluster_that_does_not_answer_leaves_no_run_behind(store, workspace, nobody):
    with pytest.raises(ClusterUnreachableError):
        submit_run(submission(workspace), store=store, cluster=info(), client=nobody)
    assert left_behind(store) == []


def crowded(active: int, **changes: object) -> ClusterInfo:
    values = {"jobs_running": active, "num_cpus": 2.0, "memory_bytes": 16 * 1024**3, "warm": "warm"}
    return info().model_copy(update=values | changes)


def test_more_runs_than_the_machine_has_memory_for_are_refused_before_a_driver_starts(
    store, workspace, nobody
):
    with pytest.raises(SubmissionError) as caught:
        submit_run(submission(workspace), store=store, cluster=crowded(44), client=nobody)
    values = ("44", "'test'", "2 CPUs", "at most 42", "128 MiB")
    assert missing(str(caught.value), *values) == []
    assert "llmops stop" in caught.value.remedy
    assert left_behind(store) == []


def test_a_retry_waits_like_a_new_run(store, make_run, worker, nobody):
    run_id = make_run()
    worker(run_id).emit(EndEvent(state="FAILED"))
    with pytest.raises(SubmissionError, match="44 runs are active"):
        retry_run(store, run_id, cluster=crowded(44), client=nobody)


@pytest.mark.parametrize(
    "cluster",
    [
        crowded(43),
        crowded(44, num_cpus=64.0),
        crowded(36, num_cpus=16.0, memory_bytes=8 * 1024**3),
        crowded(9, memory_bytes=1024**3),
        crowded(44, provider="kuberay"),
        crowded(44, memory_bytes=None),
    ],
)
def test_fewer_runs_may_wait(cluster):
    check_waiting(cluster)


@pytest.mark.parametrize(
    ("cluster", "most"),
    [
        (crowded(44), 42),
        (crowded(98, memory_bytes=64 * 1024**3), 96),
        (crowded(37, num_cpus=16.0, memory_bytes=8 * 1024**3), 21),
        (crowded(10, memory_bytes=1024**3), 8),
        (crowded(16, warm="off (template)"), 14),
    ],
)
def test_so_many_may_wait_as_memory_and_processors_have_room_for(cluster, most):
    with pytest.raises(SubmissionError, match=f"at most {most} may wait"):
        check_waiting(cluster)


def test_a_run_cannot_be_tried_again_while_it_runs_or_without_its_code(
    store, make_run, worker, nobody
):
    run_id = make_run()
    with pytest.raises(RunStateError, match="PENDING"):
        retry_run(store, run_id, cluster=info(), client=nobody)
    worker(run_id).emit(EndEvent(state="FAILED"))
    record = store.record(run_id).model_copy(update={"run_id": "other-1", "code_hash": "gone"})
    store.create(record, config_yaml="")
    with pytest.raises(SubmissionError, match="was deleted"):
        retry_run(store, "other-1", cluster=info(), client=nobody)


def uploads(store: RunStore, run_id: str) -> str:
    (detail,) = [
        event.detail
        for event in store.events(run_id)
        if isinstance(event, PhaseEvent) and (event.name, event.state) == ("upload", "end")
    ]
    return detail


@pytest.mark.ray
def test_only_what_is_new_is_uploaded(store, workspace, client, connection):
    """The jobs are stopped at once: what matters here is what Ray was given."""
    salt = secrets.token_hex(4)
    (workspace / "rows.jsonl").write_text(f'{{"text": "{salt}"}}\n' * 3000)
    submit = {"store": store, "cluster": info(connection), "client": client}
    first, _ = submit_run(submission(workspace, name="one"), **submit)
    client.stop(f"{first.run_id}-1")
    assert "code sent" in uploads(store, first.run_id)
    assert "assets sent" in uploads(store, first.run_id)
    names = [e.name for e in store.events(first.run_id) if isinstance(e, PhaseEvent)]
    assert names[:6] == ["snapshot", "snapshot", "upload", "upload", "pending", "pending"]

    (workspace / "hooks.py").write_text(f"def format_example(row):  # {salt}\n    return row\n")
    again = submission(workspace, name="two", seed=7, parent=first.run_id)
    second, _ = submit_run(again, **submit)
    client.stop(f"{second.run_id}-1")
    reported = uploads(store, second.run_id)
    assert "code sent" in reported
    assert "library reused" in reported
    assert "assets reused" in reported
    assert second.parent == first.run_id
    assert second.assets_hash == first.assets_hash
    assert second.code_hash != first.code_hash
    until(lambda: ended(client, f"{first.run_id}-1") and ended(client, f"{second.run_id}-1"))


@pytest.mark.ray
def test_a_retry_hands_over_the_same_record_with_the_packages_kept_here(
    store, workspace, client, connection
):
    cluster = info(connection)
    record, attempt = submit_run(submission(workspace), store=store, cluster=cluster, client=client)
    client.stop(attempt.submission_id)
    (workspace / "hooks.py").write_text("raise RuntimeError('newer code')\n")
    folder = store.folder(record.run_id)
    JournalWriter([folder.journal], stream="1-driver", attempt=1).emit(EndEvent(state="STOPPED"))

    again = retry_run(store, record.run_id, cluster=cluster, client=client)
    client.stop(again.submission_id)
    assert (again.number, again.submission_id) == (2, f"{record.run_id}-2")
    assert store.view(record.run_id).state == "PENDING"
    job = client.get(again.submission_id)
    assert job is not None
    assert job.metadata is not None
    assert (job.metadata["llmops_run"], job.metadata["llmops_attempt"]) == (record.run_id, "2")
    assert job.entrypoint == entrypoint_of(kind_named("train"))
    spec = RunSpec.decode(job.metadata[DRIVER_METADATA])
    assert (spec.run_id, spec.attempt, spec.config) == (record.run_id, 2, record.config)
    assert spec.run_root == str(folder.root)
    until(lambda: ended(client, again.submission_id) and ended(client, attempt.submission_id))
