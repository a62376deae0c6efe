"""What can be done to a cluster, what that would stop, and what it is started from again."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import ClusterError, ClusterNotFoundError, ClusterStateError, ConfigError
from llmops_kernel.metrics.events import QueueEvent
from llmops_kernel.providers.capabilities import require_possible
from llmops_kernel.providers.dashboard import described_active, idle_s
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import (
    HeadRecord,
    cluster_folder,
    definition_of,
    recordable,
)
from llmops_kernel.providers.local.status import look, possible_actions, preview_of
from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo, ClusterSize, ClusterState
from llmops_kernel.services.clusters import with_states_of
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.providers.conftest import head_record

RUN = {
    "status": "RUNNING",
    "type": "SUBMISSION",
    "submission_id": "menu-1",
    "metadata": {"llmops_run": "menu-261121-101500-ab12"},
}
JOB = {
    "status": "PENDING",
    "type": "SUBMISSION",
    "submission_id": "raysubmit_1",
    "entrypoint": f"python {'x' * 100}",
    "metadata": None,
}
DRIVER = {"status": "RUNNING", "type": "DRIVER", "job_id": "02000000"}
ENDED = {"status": "SUCCEEDED", "submission_id": "old", "start_time": 1_000, "end_time": 900_000}


def here(tmp_path: Path, **fields: object) -> HeadRecord:
    return head_record(tmp_path, **fields)


def info(state: ClusterState, record: HeadRecord, **fields: object) -> ClusterInfo:
    return ClusterInfo(
        name="lab",
        provider="local",
        state=state,
        actions=possible_actions(record, state),
        **fields,
    )


@pytest.mark.parametrize(
    ("state", "possible"),
    [
        ("ready", {"suspend", "scale", "delete"}),
        ("starting", {"suspend", "delete"}),
        ("dead", {"suspend", "resume", "delete"}),
        ("stopping", {"delete"}),
        ("stopped", {"resume", "delete"}),
    ],
)
def test_each_state_allows_its_actions_and_gives_reasons_for_the_others(
    tmp_path: Path, state: str, possible: set[str]
) -> None:
    known = info(ClusterState(state), here(tmp_path))
    assert {str(action) for action, reason in known.actions.items() if not reason} == possible
    assert set(known.actions) == set(ClusterAction)
    for action in set(ClusterAction) - {ClusterAction(name) for name in possible}:
        with pytest.raises(ClusterStateError, match=f"Cannot {action} cluster 'lab': it is"):
            require_possible(known, action)


def test_a_cluster_of_another_host_can_only_be_started_here(tmp_path: Path) -> None:
    actions = possible_actions(head_record(tmp_path, host="elsewhere"), ClusterState.DEAD)
    assert actions.pop(ClusterAction.RESUME) == ""
    assert all("host elsewhere" in reason for reason in actions.values())


@pytest.mark.parametrize("action", ["suspend", "scale", "delete"])
def test_a_preview_names_runs_jobs_and_connected_notebooks(tmp_path: Path, action: str) -> None:
    preview = preview_of(
        info(ClusterState.READY, here(tmp_path), num_nodes=1),
        ClusterAction(action),
        jobs=[RUN, JOB, DRIVER, ENDED],
        num_processes=14,
    )
    run, job, driver, nodes, processes = preview.stops
    assert run == "run menu-261121-101500-ab12 (running)"
    assert job.startswith("job raysubmit_1 (pending): python xx")
    assert len(job) < 100
    assert "02000000" in driver
    assert "notebook" in driver
    assert (nodes, processes) == ("1 node", "14 processes")
    assert preview.needs_confirmation
    assert any("journals" in line for line in preview.keeps)
    assert ("its definition" in preview.keeps) == (action != "delete")


def test_an_idle_cluster_is_suspended_without_asking_but_never_deleted_so(tmp_path: Path) -> None:
    ready = info(ClusterState.READY, here(tmp_path), num_nodes=1)
    asks = {
        action: preview_of(ready, action, jobs=[ENDED], num_processes=9).needs_confirmation
        for action in (ClusterAction.SUSPEND, ClusterAction.DELETE)
    }
    assert asks == {ClusterAction.SUSPEND: False, ClusterAction.DELETE: True}


def test_a_cluster_that_does_not_answer_is_never_said_to_run_nothing(tmp_path: Path) -> None:
    busy = info(ClusterState.READY, here(tmp_path), message="not answering for 5 s")
    preview = preview_of(busy, ClusterAction.SUSPEND, jobs=None, num_processes=9)
    assert preview.stops[0] == (
        "whatever runs on it: Ray did not report its jobs (not answering for 5 s)"
    )
    assert preview.needs_confirmation


def test_resuming_stops_nothing(tmp_path: Path) -> None:
    stopped = info(ClusterState.STOPPED, here(tmp_path))
    preview = preview_of(stopped, ClusterAction.RESUME, jobs=None, num_processes=0)
    assert preview.stops == ()
    assert not preview.needs_confirmation


@pytest.mark.parametrize(
    ("jobs", "ready_s", "expected"),
    [
        ([], 400.0, 600.0),
        ([], None, None),
        ([ENDED], 400.0, 100.0),
        ([{**ENDED, "end_time": None}], 400.0, 600.0),
        ([ENDED, RUN], 400.0, None),
        ([{**ENDED, "end_time": 2_000_000}], 400.0, 0.0),
    ],
)
def test_idle_time_counts_from_the_last_job_or_from_the_start(
    jobs: list[dict[str, object]], ready_s: float | None, expected: float | None
) -> None:
    assert idle_s(jobs, ready_s=ready_s, now_s=1000.0) == expected


FULL = ClusterTemplate(
    name="lab", num_cpus=3, stop_wait_s=7, warm={"preload": ["json"]}, env={"TOKEN": "hush"}
)


def defined(tmp_path: Path, template: ClusterTemplate, path: Path | None = None) -> HeadRecord:
    names = tuple(sorted(template.env))
    kept = recordable(template)
    return here(tmp_path, template=kept, template_path=path, env_names=names)


def test_a_definition_is_whole_but_for_env_which_never_is_on_disk(tmp_path: Path) -> None:
    record = HeadRecord.model_validate_json(defined(tmp_path, FULL).model_dump_json())
    assert "hush" not in record.model_dump_json()
    found = definition_of(record)
    assert found.template == FULL.model_copy(update={"env": {}})
    assert "Started without `env` (TOKEN)" in found.note
    assert definition_of(defined(tmp_path, ClusterTemplate(name="lab"))).note == ""
    older = here(tmp_path, template=recordable(FULL))
    assert "not recorded" in definition_of(older).note


@pytest.mark.parametrize(
    ("text", "env", "note"),
    [
        ("name: lab\nenv: {TOKEN: hush}\n", {"TOKEN": "hush"}, ""),
        ("name: lab\nenv: {OTHER: x}\n", {"OTHER": "x"}, "TOKEN before, OTHER now"),
        ("name: lab\n", {}, "TOKEN before, nothing now"),
        ("name: [\n", {}, "Started without `env` (TOKEN)"),
        (None, {}, "Started without `env` (TOKEN)"),
    ],
)
def test_env_is_read_again_from_the_templates_file(
    tmp_path: Path, text: str | None, env: dict[str, str], note: str
) -> None:
    path = tmp_path / "lab.yaml"
    if text is not None:
        path.write_text(text)
    found = definition_of(defined(tmp_path, FULL, path))
    assert found.template.env == env
    assert found.template.num_cpus == 3  # The rest is what it was, not what the file says now.
    assert (note in found.note) if note else not found.note


def test_numbers_that_no_template_may_have_are_refused_before_anything_stops(
    tmp_path: Path,
) -> None:
    definition = definition_of(defined(tmp_path, FULL))
    assert definition.resized(num_cpus=None, num_gpus=2).template.num_cpus == 3
    with pytest.raises(ConfigError, match="num_cpus"):
        definition.resized(num_cpus=0, num_gpus=None)
    with pytest.raises(ConfigError, match="Neither"):
        definition.resized(num_cpus=None, num_gpus=None)


@pytest.fixture
def stopped(tmp_path: Path) -> LocalProvider:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.write(defined(tmp_path / "gone", FULL).model_copy(update={"stopped_s": 1.0}))
    (folder.root / "logs").mkdir()
    return LocalProvider(tmp_path)


def test_a_deleted_cluster_is_forgotten_with_its_logs(
    stopped: LocalProvider, tmp_path: Path
) -> None:
    assert stopped.names() == ("lab",)
    assert stopped.preview("lab", ClusterAction.DELETE).stops == ()
    with pytest.raises(ClusterStateError, match="resume it first"):
        stopped.scale("lab", ClusterSize(num_cpus=1))
    stopped.delete("lab")
    assert stopped.names() == ()
    assert list((tmp_path / "clusters").iterdir()) == []
    for action in (stopped.delete, stopped.resume, stopped.suspend):
        with pytest.raises(ClusterNotFoundError):
            action("lab")


def test_a_cluster_of_another_host_is_not_forgotten_here(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.write(head_record(tmp_path, host="elsewhere"))
    with pytest.raises(ClusterError, match="host elsewhere"):
        LocalProvider(tmp_path).delete("lab")
    assert json.loads((folder.root / "cluster.json").read_text())["name"] == "lab"


def test_who_waits_for_a_lock_that_is_deleted_gets_that_of_the_new_folder(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    waits, got = threading.Event(), threading.Event()

    def wait() -> None:
        with folder.lock(timeout_s=60, waiting=waits.set):
            assert folder.is_locked()
            got.set()

    thread = threading.Thread(target=wait)
    with folder.lock(timeout_s=1):
        thread.start()
        assert waits.wait(60)
        folder.remove()
    assert got.wait(60)
    thread.join()


def test_a_run_that_waits_in_the_queue_is_not_called_running(tmp_path: Path) -> None:
    """Ray's job runs, because it is the run's driver that waits."""
    store, run_id = RunStore(tmp_path / "home"), "menu-261121-101500-ab12"
    record = RunRecord(
        run_id=run_id, name="menu", created_s=1.0, cluster="lab", provider="local", config={}
    )
    folder = store.create(record, config_yaml="name: menu\n")
    jobs = [RUN, {**RUN, "metadata": {"llmops_run": "somebodys-1", "llmops_user": "ann"}}, DRIVER]
    lines = described_active(jobs)
    writer = JournalWriter([folder.journal], stream="1-driver", attempt=1)
    with closing(writer):
        assert with_states_of(lines, store=store)[0].startswith(f"run {run_id} (pending)")
        writer.emit(QueueEvent(state="begin", reason="needs 2 CPUs", place=1, length=1))
    queued, others, driver = with_states_of(lines, store=store)
    assert queued == f"run {run_id} (queued)"
    assert (others, driver) == ("run somebodys-1 of ann (running)", lines[2])


def test_a_start_says_which_phase_it_is_in(tmp_path: Path) -> None:
    """Its age alone was shown as "up 87 s"."""
    process = psutil.Process()
    started = here(tmp_path, pid=process.pid, pid_created_s=process.create_time())
    folder = cluster_folder(tmp_path, "lab")
    logs = started.session / "logs"
    logs.mkdir(parents=True)

    def told() -> str:
        known = look(started, folder)
        assert known.state is ClusterState.STARTING
        return known.message

    assert told() == "Ray is starting"
    (logs / "gcs_server.out").touch()
    assert told() == "GCS is starting"
    (logs / "raylet.out").touch()
    assert told() == "dashboard and node are starting"
