"""The journal has the begin, each change and the end of a wait, and nothing without one."""

from __future__ import annotations

from llmops_kernel.driver.queue_place import ClusterUse, Request
from llmops_kernel.driver.queue_watch import QueueWatch
from llmops_kernel.metrics.events import Event, PhaseEvent, QueueEvent
from tests.waiting import until


class Cluster:
    """Answers each look with what a test has set."""

    def __init__(self) -> None:
        self.waits_behind = 0
        self.is_away = False
        self.looks = 0

    def look(self) -> ClusterUse:
        self.looks += 1
        if self.is_away:
            raise ConnectionError("the head is away")
        others = (
            Request(job=f"1{n}", amounts={"CPU": 1.0}, state="waits", asked_ns=n)
            for n in range(self.waits_behind - 1)
        )
        own = Request(job="01", amounts={"CPU": 2.0}, state="waits", asked_ns=99)
        return ClusterUse(
            own_job="01",
            total={"CPU": 2.0},
            free={"CPU": 1.0 if self.waits_behind == 1 else 0.0},
            requests=(*others, own) if self.waits_behind else (),
        )


def watch(cluster: Cluster, *, first_s: float = 0.01) -> tuple[QueueWatch, list[Event]]:
    events: list[Event] = []
    watching = QueueWatch(events.append, look=cluster.look, first_s=first_s, period_s=0.01)
    return watching, events


def test_a_run_that_does_not_wait_never_looks() -> None:
    cluster = Cluster()
    watching, events = watch(cluster, first_s=60)
    watching.begin()
    watching.end()
    assert (cluster.looks, events, watching.is_queued) == (0, [], False)


def test_the_wait_is_written_with_each_change_and_closed() -> None:
    cluster = Cluster()
    cluster.waits_behind = 2
    watching, events = watch(cluster)
    watching.begin()
    until(lambda: watching.is_queued)
    cluster.waits_behind = 1
    until(lambda: len(events) == 3)
    looks = cluster.looks
    until(lambda: cluster.looks > looks + 3)
    watching.end()
    waits = [event for event in events if isinstance(event, QueueEvent)]
    phases = [event for event in events if isinstance(event, PhaseEvent)]
    assert [(event.state, event.place, event.length) for event in waits] == [
        ("begin", None, None),
        ("begin", None, None),
        ("end", None, None),
    ]
    assert [(event.name, event.state) for event in phases] == [
        ("queue", "begin"),
        ("queue", "end"),
    ]
    assert not watching.is_queued


def test_a_look_that_fails_changes_nothing() -> None:
    cluster = Cluster()
    cluster.waits_behind = 1
    watching, events = watch(cluster)
    watching.begin()
    until(lambda: watching.is_queued)
    cluster.is_away = True
    looks = cluster.looks
    until(lambda: cluster.looks > looks + 2)
    assert watching.is_queued
    assert len(events) == 2
    cluster.is_away, cluster.waits_behind = False, 0
    until(lambda: not watching.is_queued)
    # Restarted workers ask once more.
    cluster.waits_behind = 1
    watching.begin()
    until(lambda: watching.is_queued)
    watching.end()
    assert [event.state for event in events if isinstance(event, QueueEvent)] == [
        "begin",
        "end",
        "begin",
        "end",
    ]
