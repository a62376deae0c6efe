"""The journal over the dashboard of a real Ray head, and what is said of runs that died."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.control import stop_run
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.metrics.events import EndEvent, StepEvent
from llmops_kernel.providers.local.processes import cluster_processes
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.store.journal.journal import read_lines
from llmops_kernel.store.store import RunStore
from tests.jobs.conftest import ended, make_record, start_job
from tests.jobs.fake_provider import FakeProvider
from tests.jobs.tcp_proxy import TcpProxy
from tests.messages import missing
from tests.waiting import until

pytestmark = pytest.mark.ray


def new_id() -> str:
    return f"remote-{secrets.token_hex(3)}"


def steps(events) -> list[int]:
    return [event.step for event in events if isinstance(event, StepEvent)]


def lines_of(store, run_id: str, stream: str) -> list[int]:
    path = store.folder(run_id).journal / f"{stream}.jsonl"
    return [event.seq for event in read_lines(path.read_bytes())]


def test_followers_lose_nothing_and_keep_one_copy_though_one_is_cut_off_again_and_again(
    store, make_run, run_job, connection: Connection
):
    run_id = make_run(new_id(), provider="elsewhere")
    num_steps = 300
    expected = list(range(1, num_steps + 1))
    proxy = TcpProxy(connection.dashboard_url)
    through = connection.model_copy(update={"dashboard_url": proxy.url})
    followers = [Follower(store, run_id, connection=each) for each in (through, connection)]
    got: dict[int, list[int]] = {0: [], 1: []}

    def follow(index: int) -> None:
        for batch in followers[index].follow(interval_s=0.1, timeout_s=90):
            got[index] += steps(batch)

    threads = [threading.Thread(target=follow, args=(index,)) for index in got]
    run_job(run_id, num_steps=num_steps, interval_s=0.03)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.9)
        proxy.cut()
        time.sleep(0.6)
        proxy.start()
    proxy.cut()

    assert got == {0: expected, 1: expected}
    assert all(follower.is_over for follower in followers)
    assert proxy.num_connections > 2
    # What came over the wire is kept where it outlives the cluster, each line once.
    assert lines_of(store, run_id, "1-worker-0") == expected
    assert store.view(run_id).state == "SUCCEEDED"


def test_a_killed_driver_is_reported_with_its_step_and_its_last_words(
    store, make_run, run_job, client, connection: Connection
):
    run_id = make_run(new_id())
    journal = store.folder(run_id).journal
    job_id = run_job(run_id, num_steps=5, how="kill", folders=[journal])
    until(lambda: ended(client, job_id))
    watcher = Observer(store, run_id, provider=FakeProvider(connection=connection), grace_s=0.3)
    end = watcher.check()
    assert isinstance(end, EndEvent)
    assert (end.state, end.last_step) == ("FAILED", 5)
    assert "SIGKILL" in end.message
    assert "at step 5" in end.message
    saved = (store.folder(run_id).logs / "driver-1.log").read_text()
    assert "step 5" in saved
    assert watcher.check() == end


def test_a_running_job_is_left_alone_and_can_be_stopped(
    store, make_run, run_job, client, connection: Connection
):
    run_id = make_run(new_id())
    journal = store.folder(run_id).journal
    job_id = run_job(run_id, num_steps=2, how="hang", folders=[journal])
    until(lambda: store.view(run_id).last_step == 2)
    watcher = Observer(store, run_id, provider=FakeProvider(connection=connection), grace_s=0.3)
    assert watcher.check() is None
    assert store.view(run_id).state == "RUNNING"

    assert stop_run(store, run_id, client=client) is True
    assert store.view(run_id).state == "STOPPING"
    until(lambda: ended(client, job_id))
    assert watcher.check() is not None
    view = store.view(run_id)
    assert (view.state, view.end and view.end.last_step) == ("STOPPED", 2)
    assert stop_run(store, run_id, client=client) is False


def test_a_job_that_the_cluster_does_not_know_is_lost_once_it_had_been_handed_over(
    store, make_run, connection: Connection
):
    provider = FakeProvider(connection=connection)
    known = make_run(new_id(), handed_over=False)
    assert Observer(store, known, provider=provider, grace_s=0.1).check() is None
    lost = make_run(new_id())
    end = Observer(store, lost, provider=provider, grace_s=0.1).check()
    assert end is not None
    assert "was restarted" in end.message


def test_a_package_that_is_gone_is_a_failure_with_a_remedy(
    store, make_run, client, connection: Connection
):
    run_id = make_run(new_id())
    client.submit(
        entrypoint="true",
        submission_id=f"{run_id}-1",
        runtime_env={"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"},
        metadata={},
    )
    until(lambda: ended(client, f"{run_id}-1"))
    provider = FakeProvider(connection=connection)
    end = Observer(store, run_id, provider=provider, grace_s=0.1).check()
    assert end is not None
    assert end.state == "FAILED"
    assert missing(end.message, "files") == []
    assert missing(end.remedy, "upload", f"llmops retry {run_id}") == []


def test_a_killed_head_is_reported_and_what_was_journalled_stays(store, monkeypatch):
    """A head of its own, because it dies; the short home keeps its sockets' paths short."""
    home = Path(tempfile.mkdtemp(prefix="llmops-h-"))
    monkeypatch.setenv("LLMOPS_HOME", str(home))
    provider = LocalProvider()
    try:
        provider.up(ClusterTemplate(name="local", num_cpus=1))
        run_id = new_id()
        _journal_until_killed(provider, run_id)
        watcher = Observer(RunStore(), run_id, provider=provider, grace_s=0.5)
        until(lambda: watcher.check() is not None, timeout_s=30)
        view = RunStore().view(run_id)
        assert view.state == "FAILED"
        assert view.last_step is not None
        assert f"died while the run was at step {view.last_step}" in view.message
        assert [event.step for event in view.steps] == list(range(1, view.last_step + 1))
        assert "llmops up" in view.remedy
    finally:
        provider.down("local")
        shutil.rmtree(home, ignore_errors=True)


def _journal_until_killed(provider: LocalProvider, run_id: str) -> None:
    make_record(RunStore(), run_id)
    with JobsClient(provider.connect("local")) as client:
        journal = RunStore().folder(run_id).journal
        start_job(client, run_id, num_steps=500, interval_s=0.05, folders=[journal])
    until(lambda: (RunStore().view(run_id).last_step or 0) >= 3)
    record = cluster_folder(RunStore().root, "local").read()
    assert record is not None
    for process in cluster_processes(record):
        with contextlib.suppress(psutil.Error):
            process.kill()
