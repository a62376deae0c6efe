"""A run that came before is not overtaken, and stops nobody who takes nothing from it."""

from __future__ import annotations

import threading
import time
from typing import Any

from llmops_kernel.driver.queue_place import Amounts, ClusterUse, Request
from llmops_kernel.driver.queue_watch import QueueWatch, Turn, move
from llmops_kernel.metrics.events import Event, QueueEvent
from llmops_kernel.store.record import Priority, RunSpec
from tests.messages import missing


def spec(run: str, *, user: str = "", priority: Priority = "normal") -> RunSpec:
    return RunSpec(
        run_id=run, attempt=1, config={}, run_root="", submitted_s=0.0, user=user, priority=priority
    )


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

    def get(self, name: str) -> Any:
        return self.store.get(name)

    def values(self, prefix: str) -> list[Any]:
        return [value for name, value in sorted(self.store.items()) if name.startswith(prefix)]

    def delete(self, name: str) -> bool:
        return self.store.pop(name, None) is not None

    def look(self) -> ClusterUse:
        self.looks += 1
        return ClusterUse(
            own_job="own",
            total=self.total,
            free=self.free,
            requests=tuple(self.requests),
            ended=frozenset(self.ended),
        )

    def turn(
        self, run: str, *, user: str = "", priority: Priority = "normal", **wanted: float
    ) -> Turn:
        turn = Turn(
            spec(run, user=user, priority=priority),
            look=self.look,
            store=self,
            job=lambda: f"job-{run}",
        )
        turn.ask(wanted)
        time.sleep(0.001)  # The next one asks later.
        return turn

    def gets(self, run: str, amounts: Amounts) -> None:
        """Ray gives a run what it asked for."""
        self.requests.append(Request(job=f"job-{run}", amounts=amounts, state="holds"))
        for name, amount in amounts.items():
            self.free[name] -= amount


def test_a_narrow_run_does_not_overtake_a_wide_one() -> None:
    cluster = Cluster(CPU=2.0)
    cluster.gets("first", {"CPU": 1.0})
    wide, narrow = cluster.turn("wide", CPU=2), cluster.turn("narrow", CPU=1)
    first = wide.waits_behind()  # It asks Ray when there is room: else none could go before it.
    assert first is not None
    assert (first.place, first.length) == (1, 2)
    assert missing(first.reason, "2 CPUs", "1 of 2 CPUs are used by") == []
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
    place = later.waits_behind()
    assert place is not None
    assert (place.place, place.length) == (1, 1)
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
    places = [turn.waits_behind() for turn in (restarted, later)]
    assert [place and place.place for place in places] == [1, 2]
    cluster.free["CPU"] = 1.0
    assert restarted.waits_behind() is None
    assert later.waits_behind() is not None


def test_a_run_with_nobody_before_it_asks_ray_nothing() -> None:
    cluster = Cluster(CPU=2.0)
    assert cluster.turn("only", CPU=2).waits_behind() is None
    assert cluster.looks == 0


def waiting(cluster: Cluster, run: str) -> tuple[QueueWatch, list[Event]]:
    events: list[Event] = []
    turn = Turn(spec(run), look=cluster.look, store=cluster, job=lambda: f"job-{run}")
    made = QueueWatch(events.append, turn=turn, look=cluster.look, first_s=60, period_s=0.05)
    return made, events


def test_begin_returns_when_it_is_the_turn_and_says_so_until_then() -> None:
    cluster = Cluster(CPU=2.0)
    cluster.free["CPU"] = 0.0
    first = cluster.turn("first", CPU=2)
    watch, events = waiting(cluster, "second")

    def leave() -> None:
        cluster.free["CPU"] = 2.0
        first.leave()

    threading.Timer(1.0, leave).start()
    began_s = time.monotonic()
    assert watch.begin({"CPU": 1.0})
    assert time.monotonic() - began_s > 0.9
    assert watch.is_queued
    watch.end()
    assert [*cluster.values("queue/")] == []
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


def test_a_run_of_high_priority_goes_first_and_one_of_low_gives_way_to_it() -> None:
    cluster = Cluster(CPU=2.0)
    running = cluster.turn("running", priority="low", user="ann", CPU=2)
    cluster.gets("running", {"CPU": 2.0})
    running.hold()
    normal = cluster.turn("normal", user="bob", CPU=1)
    high = cluster.turn("high", user="ann", priority="high", CPU=1)
    place = normal.waits_behind()
    assert place is not None
    assert (place.place, place.length) == (2, 2)
    assert "running/1/stop" not in cluster.store  # Only the next one asks for room.
    place = high.waits_behind()
    assert place is not None
    assert (place.place, place.length) == (1, 2)
    assert missing(place.reason, "2 of 2 CPUs are used", "gives way", "running") == []
    assert cluster.store["running/1/stop"] == {"yield_to": "high"}
    cluster.requests.clear()
    cluster.free["CPU"] = 2.0
    running.ask({"CPU": 2.0})  # It has saved its checkpoint, and waits to go on.
    assert high.waits_behind() is None
    assert running.waits_behind() is not None


def test_a_run_is_moved_by_hand_and_says_by_whom() -> None:
    cluster = Cluster(CPU=1.0)
    cluster.free["CPU"] = 0.0
    first, last = cluster.turn("first", CPU=1), cluster.turn("last", CPU=1)
    bell = last.bell()
    assert move(cluster, "last", priority=None, before="", by="eve")
    assert last.bell() != bell
    place = last.waits_behind()
    assert place is not None
    assert (place.place, place.length) == (1, 2)
    assert "moved by eve" in place.reason
    assert move(cluster, "first", priority="high", before=None, by="ann")
    place = first.waits_behind()
    assert place is not None
    assert place.place == 2  # Where it stands was said by hand; its priority is below that.
    assert not move(cluster, "unknown", priority="high", before=None, by="ann")


def test_what_a_run_has_used_counts_once_also_if_its_driver_was_killed() -> None:
    cluster = Cluster(CPU=2.0)
    ended = cluster.turn("ended", user="ann", CPU=2)
    ended.hold()
    name = next(name for name in cluster.store if name.endswith("/ended"))
    cluster.store[name]["held_since_s"] -= 100.0
    cluster.free["CPU"] = 0.0
    one, two = (cluster.turn(run, user="bob", CPU=1) for run in ("one", "two"))
    cluster.ended.add("job-ended")
    for turn in (one, two, one):
        turn.waits_behind()
    usage = cluster.store["used/ann"]
    assert usage["user"] == "ann"
    assert abs(usage["amount_s"]["CPU"] - 200.0) < 5.0
    one.leave()  # It has used nothing.
    assert "used/bob" not in cluster.store


def test_who_asks_again_keeps_what_was_changed_by_hand_and_what_it_has_used_counts() -> None:
    cluster = Cluster(CPU=2.0)
    run = cluster.turn("run", user="ann", priority="low", CPU=2)
    run.hold()
    name = next(name for name in cluster.store if name.endswith("/run"))
    cluster.store[name]["held_since_s"] -= 100.0
    assert move(cluster, "run", priority="high", before=None, by="bob")
    run.ask({"CPU": 2.0})  # It gave way, or lost a worker.
    again = cluster.store[name]
    assert (again["priority"], again["moved_by"], again["held_since_s"]) == ("high", "bob", None)
    assert abs(cluster.store["used/ann"]["amount_s"]["CPU"] - 200.0) < 5.0
    run.leave()
    assert abs(cluster.store["used/ann"]["amount_s"]["CPU"] - 200.0) < 5.0  # Not twice.
