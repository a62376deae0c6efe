"""The order in which runs ask Ray for resources: the one that came first is not overtaken.

Ray places whichever request fits, so a run that needs two CPUs waits for as long as runs that need
one keep coming. Each driver that needs resources therefore leaves a ticket in Ray's key-value
store, and asks Ray only when no earlier ticket is left that waits for some of the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llmops_kernel.driver import kv_store
from llmops_kernel.driver.queue.cluster_use import Amounts, ClusterUse, add
from llmops_kernel.driver.queue.place import Place, amounts_words

_PREFIX = "queue/"


class Store(Protocol):
    """What of `kv_store` is used."""

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

    def ask(self, wanted: Mapping[str, float]) -> None:
        """Leave the ticket, or renew it."""
        self._asked_ns = self._asked_ns or time.time_ns()
        self._name = _name(self._asked_ns, self._run)
        amounts = {name: amount for name, amount in wanted.items() if amount > 0}
        ticket = {"run": self._run, "job": self._job(), "asked_ns": self._asked_ns}
        self._store.put(self._name, ticket | {"wanted": amounts})

    def leave(self) -> None:
        """Take the ticket back: the resources are there, or are not wanted any more."""
        name, self._name = self._name, ""
        if name:
            self._store.delete(name)

    def waits_behind(self) -> Place | None:
        """Return the place of this run while an earlier one must come first; None if it may ask."""
        tickets = self._tickets()
        own = next((one for one in tickets if self._is_own(one)), None)
        if own is None or tickets[0] is own:
            return None  # Nothing else is read where nobody is before it.
        use = self._look()
        self._remove_ended(tickets, use)
        alike = _alike(own, tickets, use)
        before = [
            one
            for one in alike[: alike.index(own)]
            if _can_have(one, use) and not _has_them(one, use)
        ]
        if not before or _fits(add(one.wanted for one in [*before, own]), use.free):
            return None
        return Place(_reason(own, before[0]), alike.index(own) + 1, len(alike))

    def place(self, use: ClusterUse) -> tuple[int, int] | None:
        """Return this run's place and how many wait for some of the same; None without a ticket."""
        tickets = self._tickets()
        own = next((one for one in tickets if self._is_own(one)), None)
        if own is None:
            return None
        alike = _alike(own, tickets, use)
        return alike.index(own) + 1, len(alike)

    def _remove_ended(self, tickets: list[Ticket], use: ClusterUse) -> None:
        """Remove tickets of killed drivers: each later run would look at the cluster for them."""
        for one in tickets:
            if one.job in use.ended:
                self._store.delete(_name(one.asked_ns, one.run))

    def _is_own(self, ticket: Ticket) -> bool:
        return (ticket.run, ticket.asked_ns) == (self._run, self._asked_ns)

    def _tickets(self) -> list[Ticket]:
        found = [Ticket(**value) for value in self._store.values(_PREFIX)]
        return sorted(found, key=lambda one: (one.asked_ns, one.run))


def _name(asked_ns: int, run: str) -> str:
    return f"{_PREFIX}{asked_ns:020d}/{run}"


def _alike(own: Ticket, tickets: list[Ticket], use: ClusterUse) -> list[Ticket]:
    """Return the tickets of living drivers that want some of the same resources, in order."""
    return [
        one
        for one in tickets
        if one is own or (one.job not in use.ended and one.wanted.keys() & own.wanted.keys())
    ]


def _can_have(ticket: Ticket, use: ClusterUse) -> bool:
    """Return whether the cluster as it is can hold it: what waits for new nodes stops nobody."""
    if any(one.is_too_large for one in use.requests if one.job == ticket.job):
        return False
    return _fits(ticket.wanted, use.total)


def _has_them(ticket: Ticket, use: ClusterUse) -> bool:
    """Return whether Ray has given them already; its workers are starting."""
    states = {one.state for one in use.requests if one.job == ticket.job}
    return states == {"holds"}


def _fits(amounts: Amounts, into: Mapping[str, float]) -> bool:
    return all(amount <= into.get(name, 0.0) for name, amount in amounts.items())


def _reason(own: Ticket, first: Ticket) -> str:
    return (
        f"needs {amounts_words(own.wanted)}; run {first.run}, which came before, waits for"
        f" {amounts_words(first.wanted)}"
    )


def _own_job() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())
