"""Where a log is found: the session folder of a head on this machine, then what was kept."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llmops_kernel.api.run_handle import Run
from llmops_kernel.errors import RunNotFoundError
from llmops_kernel.jobs.follow import keep_log, log_on_disk, saved_log
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from tests.jobs.conftest import MakeRun
from tests.providers.conftest import head_record


def head(store: RunStore, tmp_path: Path, *, host: str = "") -> Path:
    """A record of a head whose session folder is on this machine; returns the log folder."""
    logs = tmp_path / "ray" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    record = head_record(tmp_path / "ray", name="local", host=host or socket.gethostname())
    folder = cluster_folder(store.root, "local")
    folder.create()
    folder.write(record)
    return logs


def found(store: RunStore, run_id: str) -> str | None:
    attempt = store.attempts(run_id)[-1]
    log = log_on_disk(store.folder(run_id), store.record(run_id), attempt)
    return None if log is None else log.tail(10)


def test_the_file_that_ray_writes_comes_first_then_the_kept_one(
    store: RunStore, make_run: MakeRun, tmp_path: Path
):
    run_id = make_run()
    assert found(store, run_id) is None
    logs = head(store, tmp_path)
    left = cluster_folder(store.root, "local").kept_logs
    left.mkdir()
    (left / "job-driver-demo-1-1.log").write_text("left by the cluster\n")
    assert found(store, run_id) == "left by the cluster\n"
    saved = saved_log(store.folder(run_id), 1)
    saved.parent.mkdir()
    saved.write_text("kept\n")
    assert found(store, run_id) == "kept\n"
    (logs / "job-driver-demo-1-1.log").write_text("live\n")
    assert found(store, run_id) == "live\n"


def test_another_machines_session_is_not_read(store: RunStore, make_run: MakeRun, tmp_path: Path):
    run_id = make_run()
    logs = head(store, tmp_path, host="elsewhere")
    (logs / "job-driver-demo-1-1.log").write_text("live\n")
    assert found(store, run_id) is None


def test_a_long_log_is_kept_from_its_end_and_says_so(tmp_path: Path):
    source, target = tmp_path / "long.log", tmp_path / "logs" / "driver-1.log"
    source.write_text("".join(f"line {number}\n" for number in range(1000)))
    keep_log(source, target)
    assert target.read_bytes() == source.read_bytes()
    keep_log(source, target, max_bytes=100)
    kept = target.read_text().splitlines()
    assert "were not kept" in kept[0]
    assert kept[1].startswith("line 9")
    assert kept[-1] == "line 999"
    assert list(target.parent.iterdir()) == [target]


def test_an_attempt_that_never_was_is_reported(store: RunStore, make_run: MakeRun):
    run = Run(Backend(store=store), make_run())
    with pytest.raises(RunNotFoundError, match="no attempt 7"):
        run.log(7)


def test_each_attempt_has_its_own_log(store: RunStore, make_run: MakeRun):
    run = Run(Backend(store=store), make_run(num_attempts=2))
    for number in (1, 2):
        path = saved_log(run.folder, number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"attempt {number}\n")
    assert run.logs() == "attempt 2\n"
    assert run.log(1).tail(1) == "attempt 1\n"
