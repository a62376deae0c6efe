from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llmops_kernel.jobs.observe import ABANDONED_S, SUBMIT_LIMIT_S, Observer
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.metrics.events import EndEvent, PhaseEvent, StepEvent
from llmops_kernel.providers.protocol import ClusterState, Connection
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import Run
from llmops_kernel.store.journal.journal import read_lines
from llmops_kernel.store.store import submitting
from tests.jobs.conftest import start, step
from tests.jobs.fake_provider import FakeProvider
from tests.messages import missing
from tests.store.record.test_submitting import killed_client


def ends(store, run_id: str) -> list[EndEvent]:
    return [event for event in store.events(run_id) if isinstance(event, EndEvent)]


class NoJobs(BaseHTTPRequestHandler):
    """A dashboard of a Ray that has taken no job."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"Job run-1-1 does not exist")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def ray_without_jobs() -> Iterator[Connection]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoJobs) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Connection(dashboard_url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def observer(store, run_id: str, provider: FakeProvider) -> Observer:
    return Observer(store, run_id, provider=provider, grace_s=0.1)


@pytest.mark.parametrize("state", [ClusterState.DEAD, ClusterState.STOPPED, None])
def test_a_cluster_that_went_away_ends_the_run_with_the_step_it_was_at(
    store, make_run, worker, state
):
    run_id = make_run()
    writer = worker(run_id)
    writer.emit(start())
    writer.emit(step(41))
    end = observer(store, run_id, FakeProvider(state=state, message="killed")).check()
    assert end is not None
    assert (end.state, end.last_step, end.stream) == ("FAILED", 41, "1-observer")
    assert "at step 41" in end.message
    assert "llmops up" in end.remedy
    assert "llmops retry demo-1" in end.remedy
    assert store.view(run_id).state == "FAILED"


def test_only_one_of_many_observers_writes_the_end(store, make_run, worker):
    run_id = make_run()
    worker(run_id).emit(step(3))
    watchers = [observer(store, run_id, FakeProvider(state=ClusterState.DEAD)) for _ in range(8)]
    found: list[EndEvent | None] = []
    threads = [threading.Thread(target=lambda w=w: found.append(w.check())) for w in watchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends(store, run_id)) == 1
    assert [end and end.last_step for end in found] == [3] * 8


def _append(journal: Path, ready) -> None:
    ready.wait()
    for _ in range(20):
        append_as_observer(journal, StepEvent.model_validate(step(1).model_dump()), attempt=1)


def test_processes_share_the_observer_stream_without_a_double_number(store, make_run):
    journal = store.folder(make_run()).journal
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    workers = [context.Process(target=_append, args=(journal, ready)) for _ in range(3)]
    for process in workers:
        process.start()
    ready.set()
    for process in workers:
        process.join()
    events = read_lines((journal / "1-observer.jsonl").read_bytes())
    assert [event.seq for event in events] == list(range(1, 61))


def test_lines_that_are_still_arriving_hold_the_judgement_back(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    writer.emit(step(1))

    def go_on() -> None:
        for number in range(2, 8):
            time.sleep(0.1)
            writer.emit(step(number))
        writer.emit(EndEvent(state="SUCCEEDED", last_step=7))

    thread = threading.Thread(target=go_on)
    thread.start()
    watcher = Observer(store, run_id, provider=FakeProvider(state=ClusterState.DEAD), grace_s=0.5)
    end = watcher.check()
    thread.join()
    assert end is not None
    assert end.state == "SUCCEEDED"
    assert len(ends(store, run_id)) == 1


def test_a_run_that_reported_its_end_is_left_alone(store, make_run, worker):
    run_id = make_run()
    worker(run_id).emit(EndEvent(state="STOPPED", message="stopped at step 5"))
    end = observer(store, run_id, FakeProvider(state=None)).check()
    assert end is not None
    assert end.state == "STOPPED"
    assert len(ends(store, run_id)) == 1


def test_a_silent_dashboard_is_no_proof(store, make_run):
    run_id = make_run()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    nobody = Connection(dashboard_url=f"http://127.0.0.1:{port}")
    provider = FakeProvider(connection=nobody)
    assert observer(store, run_id, provider).check() is None
    assert store.view(run_id).state == "PENDING"


def test_another_machines_local_cluster_is_not_judged_from_here(store, make_run):
    run_id = make_run(host="elsewhere")
    assert observer(store, run_id, FakeProvider(state=None)).check() is None


@pytest.mark.parametrize(("age_s", "state"), [(1.0, "PENDING"), (SUBMIT_LIMIT_S + 1, "FAILED")])
def test_a_client_that_died_before_it_wrote_an_attempt(store, make_run, age_s, state):
    run_id = make_run(age_s=age_s, num_attempts=0)
    observer(store, run_id, FakeProvider()).check()
    assert store.view(run_id).state == state


@pytest.mark.parametrize("num_attempts", [0, 1])
@pytest.mark.parametrize(
    ("age_s", "state"), [(ABANDONED_S / 3, "PENDING"), (ABANDONED_S + 5, "FAILED")]
)
def test_a_client_that_was_killed_while_it_submitted(
    store, make_run, ray_without_jobs, num_attempts, age_s, state
):
    """Such a run stood for 15 minutes as one that is about to begin."""
    killed_client(store.root)
    run_id = make_run("run-1", num_attempts=num_attempts, handed_over=False)
    later = Observer(
        store,
        run_id,
        provider=FakeProvider(connection=ray_without_jobs),
        grace_s=0.1,
        clock=lambda: time.time() + age_s,
    )
    later.check()
    assert store.view(run_id).state == state
    assert ("before it had submitted" in store.view(run_id).message) == (state == "FAILED")


def test_a_client_that_is_still_submitting_has_its_time(store, make_run, ray_without_jobs):
    run_id = make_run("run-1", handed_over=False)
    provider = FakeProvider(connection=ray_without_jobs)
    states = []
    with submitting(store.root, "run-1"):
        clocks = [lambda: time.time() + 60, lambda: time.time() + SUBMIT_LIMIT_S + 1]
        for clock in clocks:
            Observer(store, run_id, provider=provider, grace_s=0.1, clock=clock).check()
            states.append(store.view(run_id).state)
    assert states == ["PENDING", "FAILED"]


def test_nudge_returns_at_once_and_checks_in_the_background(store, make_run, worker):
    run_id = make_run()
    worker(run_id).emit(step(2))
    watcher = observer(store, run_id, FakeProvider(state=ClusterState.DEAD))
    began_s = time.perf_counter()
    watcher.nudge()
    watcher.nudge()
    assert time.perf_counter() - began_s < 2
    deadline_s = time.monotonic() + 60
    while not ends(store, run_id) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert [end.last_step for end in ends(store, run_id)] == [2]


def test_a_run_that_starts_learns_what_its_fork_server_is_doing(store, make_run, worker):
    run_id = make_run()
    worker(run_id).emit(PhaseEvent(name="runtime_env", state="begin"))
    provider = FakeProvider(connection=Connection(dashboard_url="http://127.0.0.1:9"))
    provider.warm = {
        "warm": "starting (the last one: was killed)",
        "warm_cold_starts": 31,
        "warm_cold_reason": "the fork server was not ready within 40 s",
    }
    run = Run(Backend(store=store), run_id, provider=provider)
    run.ask_about_start()
    told = run.view.cluster_says
    assert missing(told, "starting", "was killed", "31", "not ready within 40 s") == []
    # Who follows it hears it from the check of a run that has been silent for a while.
    follower = run.follower()
    follower.poll()
    deadline_s = time.monotonic() + 20
    while not follower.view.cluster_says and time.monotonic() < deadline_s:
        time.sleep(0.1)
        follower.poll()
    assert follower.view.cluster_says == told
    provider.state, provider.message = ClusterState.STARTING, "the dashboard does not answer"
    run.ask_about_start()
    values = (run.attempts[-1].full_name, "starting", "the dashboard does not answer")
    assert missing(run.view.cluster_says, *values) == []
