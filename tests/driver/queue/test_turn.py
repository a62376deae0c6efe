"""A run that came before is not overtaken, and stops nobody who takes nothing from it."""

from __future__ import annotations

import threading
import time
from typing import Any

from llmops_kernel.driver.queue_place import Amounts, ClusterUse, Request
from llmops_kernel.driver.queue_watch import QueueWatch, Turn
from llmops_kernel.metrics.events import Event, QueueEvent
from tests.messages import missing


class Cluster:
    """Ray's key-value store, and what Ray says of its use."""

    def __init__(self, **total: float) -> None:
        self.store: dict[str, Any] = {}
        self.total, self.free = total, dict(total)
        self.requests: list[Request] = []
        self.ended: set[str] = set()
        self.looks = 0
        self.is_away = False

    def put(self, name: str, value: Any) -> None:
        if self.is_away:
            raise ConnectionError("the head is away")
        self.store[name] = value

    def values(self, prefix: str) -> list[Any]:
        return [value for name, value in sorted(self.store.items()) if name.startswith(prefix)]

    def delete(self, name: str) -> None:
        self.store.pop(name, None)

    def look(self) -> ClusterUse:
        self.looks += 1
        return ClusterUse(
            own_job="own",
            total=self.total,
            free=self.free,
            requests=tuple(self.requests),
            ended=frozenset(self.ended),
        )

    def turn(self, run: str, **wanted: float) -> Turn:
        made = Turn(run, look=self.look, store=self, job=lambda: f"job-{run}")
        made.ask(wanted)
        time.sleep(0.001)  # The next one asks later.
        return made

    def gets(self, run: str, amounts: Amounts) -> None:
        """Ray gives a run what it asked for."""
        self.requests.append(Request(job=f"job-{run}", amounts=amounts, state="holds"))
        for name, amount in amounts.items():
            self.free[name] -= amount


def test_a_narrow_run_does_not_overtake_a_wide_one() -> None:
    cluster = Cluster(CPU=2.0)
    cluster.gets("first", {"CPU": 1.0})
    wide, narrow = cluster.turn("wide", CPU=2), cluster.turn("narrow", CPU=1)
    assert wide.waits_behind() is None
    place = narrow.waits_behind()
    assert place is not None
    assert (place.place, place.length) == (2, 2)
    assert missing(place.reason, "1 CPU", "run wide", "2 CPUs") == []
    wide.leave()  # It has its resources.
    assert narrow.waits_behind() is None


def test_it_need_not_wait_where_there_is_room_for_both() -> None:
    cluster = Cluster(CPU=4.0)
    cluster.turn("wide", CPU=2)
    assert cluster.turn("narrow", CPU=1).waits_behind() is None
    cluster.gets("wide", {"CPU": 2.0})  # Its workers are still starting.
    assert cluster.turn("third", CPU=2).waits_behind() is not None  # `narrow` comes before.
    cluster.gets("narrow", {"CPU": 1.0})
    assert cluster.turn("fourth", CPU=1).waits_behind() is not None


def test_other_resources_are_another_queue() -> None:
    cluster = Cluster(CPU=2.0, GPU=1.0)
    cluster.gets("first", {"GPU": 1.0})
    cluster.turn("needs-gpu", GPU=1, CPU=0)
    assert cluster.turn("needs-cpu", CPU=1).waits_behind() is None


def test_what_the_cluster_cannot_hold_now_stops_nobody() -> None:
    """It waits for nodes that an autoscaler adds, or for ever."""
    cluster = Cluster(CPU=2.0)
    cluster.turn("huge", CPU=8)
    cluster.turn("on-one-node", CPU=2)
    one = Request(job="job-on-one-node", amounts={"CPU": 2.0}, state="waits", is_too_large=True)
    cluster.requests.append(one)
    cluster.free["CPU"] = 1.0
    assert cluster.turn("small", CPU=1).waits_behind() is None


def test_a_driver_that_was_killed_keeps_nobody() -> None:
    cluster = Cluster(CPU=1.0)
    cluster.gets("first", {"CPU": 1.0})
    cluster.turn("killed", CPU=1)
    later = cluster.turn("later", CPU=1)
    assert later.waits_behind() is not None
    cluster.ended.add("job-killed")
    assert later.waits_behind() is None
    assert later.place(cluster.look()) == (1, 1)
    looks = cluster.looks
    assert later.waits_behind() is None
    assert cluster.looks == looks  # The ticket is gone: it cost each later run a look.


def test_who_lost_a_worker_keeps_its_place() -> None:
    cluster = Cluster(CPU=1.0)
    cluster.free["CPU"] = 0.0
    restarted = cluster.turn("restarted", CPU=1)
    restarted.leave()
    later = cluster.turn("later", CPU=1)
    restarted.ask({"CPU": 1.0})
    assert restarted.waits_behind() is None
    assert later.waits_behind() is not None


def test_a_run_with_nobody_before_it_asks_ray_nothing() -> None:
    cluster = Cluster(CPU=2.0)
    assert cluster.turn("only", CPU=2).waits_behind() is None
    assert cluster.looks == 0


def waiting(cluster: Cluster, run: str) -> tuple[QueueWatch, list[Event]]:
    events: list[Event] = []
    turn = Turn(run, look=cluster.look, store=cluster, job=lambda: f"job-{run}")
    made = QueueWatch(events.append, turn=turn, look=cluster.look, first_s=60, period_s=0.05)
    return made, events


def test_begin_returns_when_it_is_the_turn_and_says_so_until_then() -> None:
    cluster = Cluster(CPU=2.0)
    cluster.free["CPU"] = 0.0
    first = cluster.turn("first", CPU=2)
    watch, events = waiting(cluster, "second")
    threading.Timer(1.0, first.leave).start()
    began_s = time.monotonic()
    assert watch.begin({"CPU": 1.0})
    assert time.monotonic() - began_s > 0.9
    assert watch.is_queued
    watch.end()
    assert not cluster.store
    waits = [event for event in events if isinstance(event, QueueEvent)]
    assert [(one.state, one.place, one.length) for one in waits] == [
        ("begin", 2, 2),
        ("end", None, None),
    ]


def test_a_stop_ends_the_wait() -> None:
    cluster = Cluster(CPU=2.0)
    cluster.free["CPU"] = 0.0
    cluster.turn("first", CPU=2)
    watch, _ = waiting(cluster, "second")
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert not watch.begin({"CPU": 1.0}, stop=stop)
    assert not watch.is_queued
    assert [one for one in cluster.store if "second" in one] == []
    watch, _ = waiting(cluster, "third")
    threading.Timer(0.3, watch.end).start()
    assert not watch.begin({"CPU": 1.0})


def test_where_the_store_does_not_answer_ray_decides() -> None:
    cluster = Cluster(CPU=2.0)
    watch, events = waiting(cluster, "only")
    cluster.is_away = True
    assert watch.begin({"CPU": 1.0})
    watch.end()
    assert events == []
