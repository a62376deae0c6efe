"""The cost of a run so far: the nodes it used, times their hours; and the energy of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmops_kernel.metrics.events import HoldEvent

_HOUR_S = 3600.0
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Money and node-hours of a run; unknown numbers are None."""

    money: float | None = None
    """In `currency`."""
    currency: str = ""
    node_hours: float | None = None


UNKNOWN = Cost()


def cost_so_far(holds: Iterable[HoldEvent], *, until_s: Mapping[int, float]) -> Cost:
    """Return the sum over nodes of node-hours held x price of the node for an hour.

    `until_s`: for each attempt that began on the cluster, the Unix time (s) up to which it is
    counted: its end, else the newest event that the run itself wrote. Never the reader's clock:
    it would go on for a run whose driver was killed. Attempts add up.

    A node counts whole from the first to the last process that the run has on it. Two runs that
    share a node each count all of it, so costs of runs must not be added up to a bill. Not
    counted: waiting for a node, a cluster without runs, an engine that stays loaded after the
    run, network and storage. Times are those of the driver's clock; where it was set back during
    a hold, the hold counts as 0.

    Money is None where a node has no price or currencies differ; all is None where what an
    attempt held is not known: it was written by an earlier version, or by Ray's own trainer.
    """
    by_attempt: dict[int, list[HoldEvent]] = {attempt: [] for attempt in until_s}
    for event in holds:
        by_attempt.setdefault(event.attempt, []).append(event)
    if not by_attempt or not all(by_attempt.values()):
        return UNKNOWN
    hold_hours: list[tuple[HoldEvent, float]] = []
    for attempt, events in by_attempt.items():
        hold_hours += _held(events, until_s.get(attempt))
    currencies = {event.currency for event, _ in hold_hours}
    prices = [event.node_hour for event, _ in hold_hours]
    known_prices = [price for price in prices if price is not None]
    if len(currencies) != 1 or len(known_prices) < len(prices):
        return Cost(node_hours=sum(hours for _, hours in hold_hours))
    return Cost(
        money=sum(
            price * hours for price, (_, hours) in zip(known_prices, hold_hours, strict=True)
        ),
        currency=currencies.pop(),
        node_hours=sum(hours for _, hours in hold_hours),
    )


def energy_cost(holds: Iterable[HoldEvent], energy_j: float | None) -> Cost:
    """Return what that energy costs; `node_hours` is not part of it.

    Never added to `cost_so_far`: only who sets the prices knows whether a node's price contains
    the electricity. Money is None where the energy is, or where the nodes that the run has held do
    not all have the same price of a kWh: the energy is the sum of all nodes.
    """
    prices = {(event.kwh, event.currency) for event in holds if event.state == "begin"}
    price, currency = prices.pop() if len(prices) == 1 else (None, "")
    if energy_j is None or price is None:
        return UNKNOWN
    return Cost(money=price * energy_j / JOULES_PER_KWH, currency=currency)


def _held(events: Sequence[HoldEvent], until_s: float | None) -> list[tuple[HoldEvent, float]]:
    """Return each hold of an attempt, by its begin, with its hours."""
    ordered = sorted(events, key=lambda event: (event.time_s, event.state == "begin", event.seq))
    last_s = ordered[-1].time_s if until_s is None else until_s
    hold_hours: list[tuple[HoldEvent, float]] = []
    open_: dict[str, HoldEvent] = {}
    for event in ordered:
        if event.state == "begin":
            open_.setdefault(event.node, event)
        elif begin := open_.pop(event.node, None):
            hold_hours.append((begin, _hours(begin.time_s, min(event.time_s, last_s))))
    return hold_hours + [(begin, _hours(begin.time_s, last_s)) for begin in open_.values()]


def _hours(begin_s: float, end_s: float) -> float:
    return max(0.0, end_s - begin_s) / _HOUR_S
