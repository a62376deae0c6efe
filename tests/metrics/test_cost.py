"""Cost so far, against values by hand and against a count second by second."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.cost import UNKNOWN, Cost, cost_so_far
from llmops_kernel.metrics.events import HoldEvent


def hold(
    node: str, state: str, time_s: float, price: float | None = 3.6, *, attempt: int = 1, **fields
) -> HoldEvent:
    values = {"node_hour": price, "currency": "" if price is None else "USD"} | fields
    return HoldEvent(node=node, state=state, time_s=time_s, attempt=attempt, **values)


# A node at 3.6 an hour costs a thousandth a second.
@pytest.mark.parametrize(
    ("events", "until_s", "money"),
    [
        ([hold("a", "begin", 100.0)], {1: 1100.0}, 1.0),
        # A worker on the driver's node, and a second begin of the same node: once.
        ([hold("a", "begin", 0.0), hold("a", "begin", 500.0)], {1: 1000.0}, 1.0),
        # A second replica comes later and leaves before the end.
        (
            [hold("a", "begin", 0.0), hold("b", "begin", 200.0), hold("b", "end", 700.0)],
            {1: 1000.0},
            1.5,
        ),
        # Nodes of different prices.
        ([hold("a", "begin", 0.0, 3.6), hold("b", "begin", 0.0, 36.0)], {1: 100.0}, 1.1),
        # A retry adds to what the first attempt cost; nothing is charged between them.
        (
            [hold("a", "begin", 0.0), hold("a", "begin", 5000.0, attempt=2)],
            {1: 1000.0, 2: 5500.0},
            1.5,
        ),
        # Released and held again: not the time between.
        (
            [hold("a", "begin", 0.0), hold("a", "end", 100.0), hold("a", "begin", 900.0)],
            {1: 1000.0},
            0.2,
        ),
        # The clock was set back by an hour: never less than nothing.
        ([hold("a", "begin", 5000.0), hold("b", "begin", 1400.0)], {1: 1500.0}, 0.1),
    ],
)
def test_by_hand(events: list[HoldEvent], until_s: dict[int, float], money: float) -> None:
    cost = cost_so_far(events, until_s=until_s)
    assert cost.money == pytest.approx(money)
    assert cost.currency == "USD"


@pytest.mark.parametrize(
    ("events", "until_s", "expected"),
    [
        ([], {}, UNKNOWN),
        # An attempt of an earlier version has written no holds: nothing is known of the sum.
        ([hold("a", "begin", 0.0, attempt=2)], {1: 10.0, 2: 3600.0}, UNKNOWN),
        # One node without a price, of two.
        (
            [hold("a", "begin", 0.0), hold("b", "begin", 0.0, None)],
            {1: 1800.0},
            Cost(node_hours=1.0),
        ),
        (
            [hold("a", "begin", 0.0), hold("b", "begin", 0.0, currency="EUR")],
            {1: 1800.0},
            Cost(node_hours=1.0),
        ),
    ],
)
def test_what_is_not_known_is_none(
    events: list[HoldEvent], until_s: dict[int, float], expected: Cost
) -> None:
    assert cost_so_far(events, until_s=until_s) == expected


_TIMES = st.integers(0, 40)
_CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["begin", "end"]), _TIMES), max_size=12
)
_PRICES = st.fixed_dictionaries(dict.fromkeys("abc", st.integers(1, 9)))


@given(_CHANGES, _PRICES, st.integers(0, 60))
def test_it_is_the_count_of_held_seconds(
    changes: list[tuple[str, str, int]], prices: dict[str, int], lasts_s: int
) -> None:
    begins = [("driver", "begin", 0), *changes]
    prices = {**prices, "driver": 2}
    events = [
        hold(node, state, float(time_s), prices[node], seq=seq)
        for seq, (node, state, time_s) in enumerate(begins, start=1)
    ]
    counted = 0
    for second in range(lasts_s):
        for node, price in prices.items():
            # The newest change up to this second decides; of two at once the begin does.
            past = [(t, state == "begin") for n, state, t in begins if n == node and t <= second]
            counted += price if past and max(past)[1] else 0
    cost = cost_so_far(events, until_s={1: float(lasts_s)})
    assert cost.money == pytest.approx(counted / 3600)
    assert cost_so_far(events[::-1], until_s={1: float(lasts_s)}) == replace(cost)
