"""Order of the runs that wait on a cluster: priority, then fair shares between users. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.driver.queue_place import Amounts, add
from llmops_kernel.store.record import Priority

HALF_LIFE_S: Final = 3600.0
"""After this time what a user has used counts half. Slurm's is a week: a loop of seconds is over by
then."""
_RANK: Final[Mapping[Priority, int]] = {"low": 0, "normal": 1, "high": 2}


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A run that needs resources: it waits for them, or holds them."""

    run: str
    job: str
    """Hexadecimal id of its Ray job."""
    asked_ns: int
    wanted: Amounts
    attempt: int = 1
    user: str = ""
    priority: Priority = "normal"
    before: str | None = None
    """Run before which somebody has put it; empty: before all."""
    moved_ns: int = 0
    moved_by: str = ""
    held_since_s: float | None = None
    """Unix time since which it has its resources; None: it waits."""

    @property
    def waits(self) -> bool:
        return self.held_since_s is None


@dataclass(frozen=True)
class Usage:
    """What a user's ended runs have used."""

    amount_s: Mapping[str, float]
    """Resource times seconds, by Ray's names, as of `at_s`."""
    at_s: float

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None, now_s: float) -> Usage:
        """Return what is stored, less what has been forgotten since."""
        if stored is None:
            return cls({}, now_s)
        left = 0.5 ** (max(0.0, now_s - stored["at_s"]) / HALF_LIFE_S)
        return cls({name: used * left for name, used in stored["amount_s"].items()}, now_s)

    def after(self, ticket: Ticket) -> Usage:
        """Return it with what a run has used until now."""
        if ticket.held_since_s is None:
            return self
        held_s = max(0.0, self.at_s - ticket.held_since_s)
        used = {name: amount * held_s for name, amount in ticket.wanted.items()}
        return Usage(add([self.amount_s, used]), self.at_s)


def in_order(
    tickets: Sequence[Ticket], *, total: Mapping[str, float], usages: Mapping[str, Usage]
) -> list[Ticket]:
    """Return the waiting tickets, the next one first.

    The higher priority comes first. Among equal ones the user comes next whose runs hold the
    smallest share of the cluster, those ahead in the queue counted in; then who has used less
    lately; then who came first. A user's share is the largest of his shares of any resource
    (dominant resource fairness, Ghodsi et al., NSDI 2011). What a user has moved by hand stands
    where it was put, in spite of all that.
    """
    held: dict[str, float] = {}
    for ticket in tickets:
        if not ticket.waits:
            held[ticket.user] = held.get(ticket.user, 0.0) + _share(ticket.wanted, total)
    recent = {user: _share(usage.amount_s, total) for user, usage in usages.items()}
    rest = [ticket for ticket in tickets if ticket.waits]
    ordered: list[Ticket] = []
    while rest:
        # Rounded: sums of the same shares in another order differ in the last digit.
        first = min(
            rest,
            key=lambda ticket: (
                -_RANK[ticket.priority],
                round(held.get(ticket.user, 0.0), 9),
                round(recent.get(ticket.user, 0.0), 3),
                ticket.asked_ns,
                ticket.run,
            ),
        )
        rest.remove(first)
        ordered.append(first)
        held[first.user] = held.get(first.user, 0.0) + _share(first.wanted, total)
    return _moved(ordered)


def _moved(ordered: list[Ticket]) -> list[Ticket]:
    moved = [ticket for ticket in ordered if ticket.before is not None]
    for ticket in sorted(moved, key=lambda ticket: ticket.moved_ns):
        ordered.remove(ticket)
        runs = [other.run for other in ordered]
        # What it was put before may have left the queue: then it was next.
        ordered.insert(runs.index(ticket.before) if ticket.before in runs else 0, ticket)
    return ordered


def _share(amounts: Mapping[str, float], total: Mapping[str, float]) -> float:
    """Return the largest share of a resource; of one that the cluster has not, all of it."""
    return max(
        (amount / total[name] if total.get(name) else 1.0 for name, amount in amounts.items()),
        default=0.0,
    )


def to_yield(
    waiting: Ticket, tickets: Sequence[Ticket], *, free: Mapping[str, float]
) -> list[Ticket]:
    """Return the running runs of low priority that must give way for `waiting` to fit.

    The youngest go first, which lose least. Empty if all of them together would not be enough:
    then nobody gives way for nothing.
    """
    if waiting.priority == "low":
        return []
    low = [ticket for ticket in tickets if not ticket.waits and ticket.priority == "low"]
    short = {name: amount - free.get(name, 0.0) for name, amount in waiting.wanted.items()}
    chosen: list[Ticket] = []
    for ticket in sorted(low, key=lambda ticket: -(ticket.held_since_s or 0.0)):
        if not any(lack > 0 for lack in short.values()):
            break
        if any(lack > 0 and ticket.wanted.get(name) for name, lack in short.items()):
            chosen.append(ticket)
            short = {name: lack - ticket.wanted.get(name, 0.0) for name, lack in short.items()}
    return [] if any(lack > 0 for lack in short.values()) else chosen
