from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from llmops_kernel.jobs.follow import Follower
from llmops_kernel.metrics.events import EndEvent, StepEvent
from llmops_kernel.store.record import Attempt
from tests.jobs.conftest import start, step


def steps(events) -> list[int]:
    return [event.step for event in events if isinstance(event, StepEvent)]


def test_events_come_once_and_a_half_line_waits_for_its_rest(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    follower = Follower(store, run_id)
    writer.emit(step(1))
    assert steps(follower.poll()) == [1]
    assert follower.poll() == []

    path: Path = store.folder(run_id).journal / "1-worker-0.jsonl"
    line = step(2).model_copy(update={"stream": "1-worker-0", "seq": 2, "time_s": 1e9})
    data = line.model_dump_json().encode() + b"\n"
    with path.open("ab") as file:
        file.write(data[:20])
        file.flush()
        assert follower.poll() == []
        file.write(data[20:])
    assert steps(follower.poll()) == [2]
    assert steps(follower.view.steps) == [1, 2]


def test_two_followers_do_not_take_each_others_events(store, make_run, worker):
    run_id = make_run()
    first, second = Follower(store, run_id), Follower(store, run_id)
    worker(run_id).emit(step(1))
    assert steps(first.poll()) == steps(second.poll()) == [1]


def test_polls_from_many_threads_share_the_events_without_loss_or_double(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    follower = Follower(store, run_id)
    got: list[int] = []
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            got.extend(steps(follower.poll()))

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 501):
        writer.emit(step(number))
    time.sleep(0.2)
    done.set()
    for thread in threads:
        thread.join()
    got.extend(steps(follower.poll()))
    assert sorted(got) == list(range(1, 501))


def test_follow_ends_with_the_newest_attempt_not_with_an_older_one(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    writer.emit(start())
    writer.emit(step(1))
    writer.emit(EndEvent(state="SUCCEEDED"))
    batches = list(Follower(store, run_id).follow(interval_s=0.01, timeout_s=5))
    assert steps([event for batch in batches for event in batch]) == [1]

    again = Attempt(number=2, submission_id="x-2", cluster="local", dashboard_url="", submitted_s=0)
    store.add_attempt(run_id, again)
    follower = Follower(store, run_id)
    for _ in follower.follow(interval_s=0.01, timeout_s=0.1):
        pass
    assert follower.view.is_terminal
    assert not follower.is_over


def test_silence_is_reported_and_news_is_not(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    calls: list[float] = []
    follower = Follower(
        store, run_id, on_silence=lambda: calls.append(time.monotonic()), silence_s=0.4
    )
    follower.poll()
    assert calls == []
    time.sleep(0.5)
    follower.poll()
    assert len(calls) == 1
    writer.emit(EndEvent(state="SUCCEEDED"))
    follower.poll()
    assert len(calls) == 2, "the end is told once, so that the log can be kept"
    time.sleep(0.5)
    follower.poll()
    assert len(calls) == 2


def test_a_poll_without_news_costs_under_five_milliseconds(store, make_run, worker):
    run_id = make_run()
    writer = worker(run_id)
    for number in range(1, 2001):
        writer.emit(step(number))
    follower = Follower(store, run_id)
    assert len(steps(follower.poll())) == 2000
    times = []
    for _ in range(50):
        began_s = time.perf_counter()
        assert follower.poll() == []
        times.append(time.perf_counter() - began_s)
    assert sorted(times)[25] < 0.005


def test_an_unknown_run_is_reported(store):
    from llmops_kernel.errors import RunNotFoundError

    with pytest.raises(RunNotFoundError):
        Follower(store, "nothing")
