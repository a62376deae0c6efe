"""Waits for the run's turn, and journals that it waits for the cluster's resources."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Protocol, cast

from llmops_kernel.config.counted import counted_resources
from llmops_kernel.driver import kv_store
from llmops_kernel.driver.queue_order import Ticket, Usage, in_order, to_yield
from llmops_kernel.driver.queue_place import (
    Amounts,
    ClusterUse,
    QueuePosition,
    add,
    find_place,
    read_cluster_use,
    used_text,
)
from llmops_kernel.metrics.events import Event, PhaseEvent, QueueEvent, WarningEvent
from llmops_kernel.store.record import Priority, RunSpec
from llmops_kernel.track.stopping import ASKS, STOP, STOP_AT, STOPPED

FIRST_POLL_S = 0.4
"""A run that does not wait has its resources by then, and never looks."""
PERIOD_S = 1.0
_LONGEST_S = 10.0
_STOP_S = 0.2
_NEAR = 3
"""Runs up to this place look again as soon as another has given resources back."""
_HURRY_S = 2.0
"""So long after that: Ray says a moment later what is free."""
QUEUE_PHASE = "queue"


class QueueWatch:
    """Looks at the cluster from `begin` to `granted` or `end`, in a thread.

    `spec` is that of the run in the queue; without one there is no order.
    """

    def __init__(
        self,
        emit: Callable[[Event], object],
        *,
        spec: RunSpec | None = None,
        turn: Turn | None = None,
        look: Callable[[], ClusterUse] | None = None,
        first_s: float = FIRST_POLL_S,
        period_s: float = PERIOD_S,
    ) -> None:
        most = spec.most_resources if spec else None
        self._emit, self._look = emit, look or partial(read_cluster_use, most)
        self._turn = turn or (Turn(spec, look=self._look) if spec else None)
        self._first_s, self._period_s = first_s, period_s
        self._lock = threading.Lock()
        self._written: QueuePosition | None = None
        self._ended = threading.Event()
        self._ended.set()

    @property
    def is_queued(self) -> bool:
        """Return whether the run waited for resources at the last check."""
        return self._written is not None

    def begin(
        self, resources: Mapping[str, float] | None = None, *, stop: threading.Event | None = None
    ) -> bool:
        """Start to look; call it before resources are requested.

        With `resources`, returns when it is this run's turn and there is room for it:
        True, or False when `end` was called or `stop` was set meanwhile, after which nothing may
        be requested.
        """
        self._ended.set()
        self._ended = ended = threading.Event()
        if resources and self._turn is not None and not self._has_turn(resources, ended, stop):
            self.end()
            return False
        arguments = (ended,)
        threading.Thread(target=self._run, args=arguments, daemon=True, name="llmops-queue").start()
        return True

    def granted(self) -> None:
        """Stop looking: the run has its resources. It is counted in until `end`."""
        self._ended.set()
        if self._turn is not None:
            with contextlib.suppress(Exception):  # The shares of users are then without this run.
                self._turn.hold()
        self._write(None)

    def end(self) -> None:
        """Leave the queue: the resources are given back, or are not needed any more."""
        self._ended.set()
        self._leave()
        self._write(None)

    def _has_turn(
        self,
        resources: Mapping[str, float],
        ended: threading.Event,
        stop: threading.Event | None,
    ) -> bool:
        assert self._turn is not None
        hurry_s = 0.0
        try:
            self._turn.ask(resources)
            bell = self._turn.bell()
            while (place := self._turn.waits_behind()) is not None:
                self._write(place)
                # Each look asks Ray's control plane, and many may wait.
                pause_s = min(_LONGEST_S, self._period_s * (place.place or 1))
                until_s = time.monotonic() + pause_s
                while time.monotonic() < until_s:
                    if ended.wait(_STOP_S) or (stop is not None and stop.is_set()):
                        return False
                    if time.monotonic() < hurry_s:
                        break
                    if (place.place or 1) <= _NEAR and (rung := self._turn.bell()) != bell:
                        bell, hurry_s = rung, time.monotonic() + _HURRY_S
                        break
        except Exception as error:
            # The head is away for a moment, or another release of Ray has no such store: Ray then
            # decides who comes first.
            print(f"llmops: this run does not keep its place in the queue ({error})", flush=True)
        return not ended.is_set()

    def _leave(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(Exception):  # A ticket of a driver that has ended counts not.
                self._turn.leave()

    def _place(self) -> QueuePosition | None:
        """Return what the request waits for in Ray, with this run's place among those that wait."""
        use = self._look()
        position = find_place(use)
        if position is None or self._turn is None or (order := self._turn.place(use)) is None:
            return position
        return QueuePosition(position.reason, *order)

    def _run(self, ended: threading.Event) -> None:
        wait_s = self._first_s
        while not ended.wait(wait_s):
            wait_s = self._period_s
            # The head may be away for a moment; a private name may have another meaning in
            # another release of Ray. The state stays as it is then.
            with contextlib.suppress(Exception):
                place = self._place()
                if not ended.is_set():
                    self._write(place)

    def _write(self, place: QueuePosition | None) -> None:
        with self._lock:
            was, self._written = self._written, place
            if place == was:
                return
            now_s = time.time()
            if place is None:
                self._emit(QueueEvent(state="end", time_s=now_s))
                self._emit(PhaseEvent(name=QUEUE_PHASE, state="end", time_s=now_s))
                return
            if was is None:
                self._emit(PhaseEvent(name=QUEUE_PHASE, state="begin", time_s=now_s))
            self._emit(
                QueueEvent(
                    state="begin",
                    reason=place.reason,
                    place=place.place,
                    length=place.length,
                    time_s=now_s,
                )
            )


# --- Turns of the runs ---
# Ray places whichever request fits, so a run that needs two CPUs waits for as long as runs that
# need one keep coming. Each driver that needs resources therefore leaves a ticket in Ray's
# key-value store, and asks Ray only when it is its turn and there is room. All read the same
# tickets, and so know the same order, without a process that could end before them.


_PREFIX = "queue/"
_USED = "used/"
_BELL = "queue-bell"


class Store(Protocol):
    """The part of `kv_store` that the queue uses."""

    def put(self, name: str, value: Any) -> None: ...
    def get(self, name: str) -> Any: ...
    def values(self, prefix: str) -> list[Any]: ...
    def delete(self, name: str) -> bool: ...


class Turn:
    """The ticket of one attempt. It keeps its place when it asks again after a lost worker."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        look: Callable[[], ClusterUse],
        store: Store | None = None,
        job: Callable[[], str] | None = None,
    ) -> None:
        self._spec, self._look = spec, look
        self._store: Store = store or cast("Store", kv_store)
        self._job = job or _own_job
        self._ticket: Ticket | None = None
        self._is_left = True

    def ask(self, resources: Mapping[str, float]) -> None:
        """Leave the ticket, or renew it: what the run has used until now counts."""
        amounts = {name: amount for name, amount in resources.items() if amount > 0}
        spec, ticket = self._spec, self._ticket
        if ticket is not None:
            ticket = self._own(self._tickets()) or ticket  # Somebody may have moved it meanwhile.
            if not self._is_left:
                self._count(ticket)
            self._put(replace(ticket, wanted=amounts, held_since_s=None))
            return
        self._put(
            Ticket(
                run=spec.run_id,
                job=self._job(),
                asked_ns=time.time_ns(),
                wanted=amounts,
                attempt=spec.attempt,
                user=spec.user,
                priority=spec.priority,
            )
        )

    def hold(self) -> None:
        """Note that the run has its resources."""
        if self._ticket is not None and not self._is_left:
            ticket = self._own(self._tickets()) or self._ticket
            if ticket.waits:
                self._put(replace(ticket, held_since_s=time.time()))

    def leave(self) -> None:
        """Take the ticket back: the resources are given back, or are not wanted any more."""
        if self._ticket is None or self._is_left:
            return
        self._is_left = True
        self._remove(self._ticket)

    def bell(self) -> Any:
        """Return a value that changes each time that a run leaves the queue or is moved in it."""
        return self._store.get(_BELL)

    def waits_behind(self) -> QueuePosition | None:
        """Return the place of this run while it must wait; None if it may ask Ray."""
        tickets = self._tickets()
        own_ticket = self._own(tickets)
        if own_ticket is None or len(tickets) == 1:
            return None  # Nothing else is read where nobody else is.
        use = self._look()
        tickets = self._living(tickets, use)
        alike = self._alike(own_ticket, tickets, use)
        place = alike.index(own_ticket)
        before = [
            ticket
            for ticket in alike[:place]
            if _fits_cluster(ticket, use) and not _holds_resources(ticket, use)
        ]
        if _fits(add(ticket.wanted for ticket in [*before, own_ticket]), use.free):
            return None
        if before:
            reason = f"run {before[0].run}, which comes first, waits for"
            reason += f" {counted_resources(before[0].wanted)}"
        elif use.most is not None or not _fits_cluster(own_ticket, use):
            return None  # Nodes are added for what Ray was asked for.
        else:
            yielding = to_yield(own_ticket, tickets, free=use.free)
            self._ask_to_yield(yielding)
            reason = _used_by(own_ticket, use)
            if yielding:
                names = ", ".join(ticket.run for ticket in yielding)
                reason += f"; gives way after its checkpoint: {names}"
        if own_ticket.moved_by:
            reason += f"; moved by {own_ticket.moved_by}"
        return QueuePosition(
            f"needs {counted_resources(own_ticket.wanted)}; {reason}", place + 1, len(alike)
        )

    def place(self, use: ClusterUse) -> tuple[int, int] | None:
        """Return this run's place and how many wait for some of the same; None without a ticket."""
        tickets = self._tickets()
        own_ticket = self._own(tickets)
        if own_ticket is None or not own_ticket.waits:
            return None
        alike = self._alike(own_ticket, self._living(tickets, use), use)
        return alike.index(own_ticket) + 1, len(alike)

    def _put(self, ticket: Ticket) -> None:
        self._ticket, self._is_left = ticket, False
        self._store.put(_name(ticket), asdict(ticket))

    def _own(self, tickets: list[Ticket]) -> Ticket | None:
        """Return the run's own ticket, which somebody may have moved."""
        if self._ticket is None:
            return None
        name = _name(self._ticket)
        ticket = next((ticket for ticket in tickets if _name(ticket) == name), None)
        self._ticket = ticket or self._ticket
        return ticket

    def _living(self, tickets: list[Ticket], use: ClusterUse) -> list[Ticket]:
        """Return the tickets of living drivers; those of killed ones are removed."""
        for ticket in tickets:
            if ticket.job in use.ended:
                self._remove(ticket)
        return [ticket for ticket in tickets if ticket.job not in use.ended]

    def _remove(self, ticket: Ticket) -> None:
        """Remove a ticket, and count what its run has used for the user's share.

        Only one process does so: the others are told that it is gone.
        """
        if self._store.delete(_name(ticket)):
            self._count(ticket)
        self._store.put(_BELL, time.time_ns())

    def _count(self, ticket: Ticket) -> None:
        """Add what a run has used since it has its resources to what its user has."""
        if not ticket.waits:
            name = f"{_USED}{ticket.user}"
            usage = Usage.of(self._store.get(name), time.time()).after(ticket)
            self._store.put(name, asdict(usage) | {"user": ticket.user})

    def _alike(self, own_ticket: Ticket, tickets: list[Ticket], use: ClusterUse) -> list[Ticket]:
        """Return the tickets that want some of the same resources: those that wait, in order."""
        alike = [
            ticket
            for ticket in tickets
            if ticket is own_ticket or ticket.wanted.keys() & own_ticket.wanted.keys()
        ]
        return queue_of(alike, total=use.total, store=self._store)

    def _ask_to_yield(self, yielding: list[Ticket]) -> None:
        for ticket in yielding:
            name = kv_store.key(ticket.run, ticket.attempt, STOP)
            if not self._store.get(name):
                self._store.put(name, {"yield_to": self._spec.run_id})

    def _tickets(self) -> list[Ticket]:
        return tickets_in(self._store)


# `STOP` of a run is True, or `{"yield_to"}` with the run for which it gives way.


def yields_to(spec: RunSpec) -> str:
    """Return the run for which this one was asked to give way; empty: for none."""
    value = kv_store.get(kv_store.key(spec.run_id, spec.attempt, STOP))
    return str(value["yield_to"]) if isinstance(value, dict) else ""


def gave_way(spec: RunSpec, other: str, *, step: int | None) -> WarningEvent:
    """Forget the request, so that the run's next workers go on; return what the journal is told."""
    for name in (STOP, STOP_AT, STOPPED, ASKS, "result"):
        kv_store.delete(kv_store.key(spec.run_id, spec.attempt, name))
    return WarningEvent(
        message=f"Gave way to run {other} after step {step or 0:,}: this run has low priority.",
        remedy="it goes on from its checkpoint as soon as there is room; `llmops queue` shows when",
    )


def tickets_in(store: Store) -> list[Ticket]:
    """Return all tickets of the cluster, of runs that wait and of those that run."""
    return [Ticket(**value) for value in store.values(_PREFIX)]


def queue_of(tickets: list[Ticket], *, total: Mapping[str, float], store: Store) -> list[Ticket]:
    """Return those that wait, the next one first."""
    now_s = time.time()
    usages = {value["user"]: Usage.of(value, now_s) for value in store.values(_USED)}
    for ticket in tickets:
        if not ticket.waits:
            usages[ticket.user] = usages.get(ticket.user, Usage({}, now_s)).after(ticket)
    return in_order(tickets, total=total, usages=usages)


def move(store: Store, run: str, *, priority: Priority | None, before: str | None, by: str) -> bool:
    """Change a run's priority, or put it before another one (empty: before all).

    Returns False if the run neither waits nor runs with resources of its own.
    """
    ticket = next((ticket for ticket in tickets_in(store) if ticket.run == run), None)
    if ticket is None:
        return False
    ticket = replace(ticket, priority=priority or ticket.priority, moved_by=by)
    if before is not None:
        ticket = replace(ticket, before=before, moved_ns=time.time_ns())
    store.put(_name(ticket), asdict(ticket))
    store.put(_BELL, time.time_ns())
    return True


def _name(ticket: Ticket) -> str:
    return f"{_PREFIX}{ticket.asked_ns:020d}/{ticket.run}"


def _fits_cluster(ticket: Ticket, use: ClusterUse) -> bool:
    """Return whether the cluster as it is can hold it: what waits for new nodes stops nobody."""
    if any(request.is_too_large for request in use.requests if request.job == ticket.job):
        return False
    return _fits(ticket.wanted, use.total)


def _holds_resources(ticket: Ticket, use: ClusterUse) -> bool:
    """Return whether Ray has given them already; its workers are starting."""
    states = {request.state for request in use.requests if request.job == ticket.job}
    return states == {"holds"}


def _fits(amounts: Amounts, into: Mapping[str, float]) -> bool:
    return all(amount <= into.get(name, 0.0) for name, amount in amounts.items())


def _used_by(ticket: Ticket, use: ClusterUse) -> str:
    short = [name for name, amount in ticket.wanted.items() if amount > use.free.get(name, 0.0)]
    return "; ".join(used_text(name, use) for name in short)


def _own_job() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())
