"""Waits for the run's turn, and journals that it waits for the cluster's resources."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from llmops_kernel.driver import kv_store
from llmops_kernel.driver.queue_place import (
    Amounts,
    ClusterUse,
    QueuePosition,
    add,
    find_place,
    format_amounts,
    read_cluster_use,
)
from llmops_kernel.metrics.events import Event, PhaseEvent, QueueEvent

FIRST_POLL_S = 0.4
"""A run that does not wait has its resources by then, and never looks."""
PERIOD_S = 1.0
_LONGEST_S = 5.0
_STOP_S = 0.2
QUEUE_PHASE = "queue"


class QueueWatch:
    """Looks at the cluster from `begin` to `end`, in a thread.

    `most` is what Ray's autoscaler can bring it to. `run` names the run in the queue; without it
    there is no order.
    """

    def __init__(
        self,
        emit: Callable[[Event], object],
        *,
        run: str = "",
        most: Mapping[str, float] | None = None,
        turn: Turn | None = None,
        look: Callable[[], ClusterUse] | None = None,
        first_s: float = FIRST_POLL_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._emit, self._look = emit, look or partial(read_cluster_use, most)
        self._turn = turn or (Turn(run, look=self._look) if run else None)
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

        With `resources`, returns when no run that came before waits for some of the same:
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

    def end(self) -> None:
        """Stop looking: the resources are there, or are not needed any more."""
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
        try:
            self._turn.ask(resources)
            while (place := self._turn.waits_behind()) is not None:
                self._write(place)
                # Each look asks Ray's control plane, and many may wait.
                until_s = time.monotonic() + min(_LONGEST_S, self._period_s * (place.place or 1))
                while time.monotonic() < until_s:
                    if ended.wait(_STOP_S) or (stop is not None and stop.is_set()):
                        return False
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
        order = self._turn.place(use) if position is not None and self._turn is not None else None
        return (
            position
            if position is None or order is None
            else QueuePosition(position.reason, *order)
        )

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


# --- Turns of the runs: the one that came first is not overtaken ---
# Ray places whichever request fits, so a run that needs two CPUs waits for as long as runs that
# need one keep coming. Each driver that needs resources therefore leaves a ticket in Ray's
# key-value store, and asks Ray only when no earlier ticket is left that waits for some of the
# same.


_PREFIX = "queue/"


class Store(Protocol):
    """The part of `kv_store` that the queue uses."""

    def put(self, name: str, value: Any) -> None: ...
    def values(self, prefix: str) -> list[Any]: ...
    def delete(self, name: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A run that needs resources and does not have them yet."""

    run: str
    job: str
    """Hexadecimal id of its Ray job."""
    asked_ns: int
    wanted: Amounts


class Turn:
    """The ticket of one attempt. It keeps its place when it asks again after a lost worker."""

    def __init__(
        self,
        run: str,
        *,
        look: Callable[[], ClusterUse],
        store: Store | None = None,
        job: Callable[[], str] | None = None,
    ) -> None:
        self._run, self._look = run, look
        self._store: Store = store or kv_store
        self._job = job or _own_job
        self._asked_ns = 0
        self._name = ""

    def ask(self, resources: Mapping[str, float]) -> None:
        """Leave the ticket, or renew it."""
        self._asked_ns = self._asked_ns or time.time_ns()
        self._name = _name(self._asked_ns, self._run)
        amounts = {name: amount for name, amount in resources.items() if amount > 0}
        ticket = {"run": self._run, "job": self._job(), "asked_ns": self._asked_ns}
        self._store.put(self._name, ticket | {"wanted": amounts})

    def leave(self) -> None:
        """Take the ticket back: the resources are there, or are not wanted any more."""
        name, self._name = self._name, ""
        if name:
            self._store.delete(name)

    def waits_behind(self) -> QueuePosition | None:
        """Return the place of this run while an earlier one must come first; None if it may ask."""
        tickets = self._tickets()
        own_ticket = next((ticket for ticket in tickets if self._is_own(ticket)), None)
        if own_ticket is None or tickets[0] is own_ticket:
            return None  # Nothing else is read where nobody is before it.
        use = self._look()
        self._remove_ended(tickets, use)
        alike = _alike(own_ticket, tickets, use)
        before = [
            ticket
            for ticket in alike[: alike.index(own_ticket)]
            if _fits_cluster(ticket, use) and not _holds_resources(ticket, use)
        ]
        if not before or _fits(add(ticket.wanted for ticket in [*before, own_ticket]), use.free):
            return None
        return QueuePosition(
            _reason(own_ticket, before[0]), alike.index(own_ticket) + 1, len(alike)
        )

    def place(self, use: ClusterUse) -> tuple[int, int] | None:
        """Return this run's place and how many wait for some of the same; None without a ticket."""
        tickets = self._tickets()
        own_ticket = next((ticket for ticket in tickets if self._is_own(ticket)), None)
        if own_ticket is None:
            return None
        alike = _alike(own_ticket, tickets, use)
        return alike.index(own_ticket) + 1, len(alike)

    def _remove_ended(self, tickets: list[Ticket], use: ClusterUse) -> None:
        """Remove tickets of killed drivers: each later run would look at the cluster for them."""
        for ticket in tickets:
            if ticket.job in use.ended:
                self._store.delete(_name(ticket.asked_ns, ticket.run))

    def _is_own(self, ticket: Ticket) -> bool:
        return (ticket.run, ticket.asked_ns) == (self._run, self._asked_ns)

    def _tickets(self) -> list[Ticket]:
        tickets = [Ticket(**value) for value in self._store.values(_PREFIX)]
        return sorted(tickets, key=lambda ticket: (ticket.asked_ns, ticket.run))


def _name(asked_ns: int, run: str) -> str:
    return f"{_PREFIX}{asked_ns:020d}/{run}"


def _alike(own_ticket: Ticket, tickets: list[Ticket], use: ClusterUse) -> list[Ticket]:
    """Return the tickets of living drivers that want some of the same resources, in order."""
    return [
        ticket
        for ticket in tickets
        if ticket is own_ticket
        or (ticket.job not in use.ended and ticket.wanted.keys() & own_ticket.wanted.keys())
    ]


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


def _reason(ticket: Ticket, first: Ticket) -> str:
    return (
        f"needs {format_amounts(ticket.wanted)}; run {first.run}, which came before, waits for"
        f" {format_amounts(first.wanted)}"
    )


def _own_job() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())
