"""The order of waiting runs: priorities, shares of users, moves by hand, and who gives way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.driver.queue_order import HALF_LIFE_S, Ticket, Usage, in_order, to_yield
from llmops_kernel.store.record import PRIORITIES

TOTAL = {"CPU": 8.0, "GPU": 2.0}


def ticket(run: str, user: str = "ann", *, cpus: float = 1.0, **changes: Any) -> Ticket:
    number = int("".join(letter for letter in run if letter.isdigit()) or 0)
    values = {"job": run, "asked_ns": number, "wanted": {"CPU": cpus}, "user": user}
    return Ticket(run=run, **values | changes)


def order(*tickets: Ticket, **used: float) -> list[str]:
    usages = {user: Usage({"CPU": amount}, 0.0) for user, amount in used.items()}
    return [each.run for each in in_order(tickets, total=TOTAL, usages=usages)]


def test_the_priority_comes_first_and_then_who_came_first() -> None:
    queue = [ticket("1", priority="low"), ticket("2"), ticket("3", priority="high"), ticket("4")]
    assert order(*queue) == ["3", "2", "4", "1"]


def test_users_take_turns_however_many_one_has_submitted_before() -> None:
    queue = [*(ticket(str(n), "ann") for n in range(1, 5)), ticket("5", "bob"), ticket("6", "bob")]
    assert order(*queue) == ["1", "5", "2", "6", "3", "4"]


def test_who_holds_more_waits_for_who_holds_less() -> None:
    running = ticket("1", "ann", cpus=4, held_since_s=0.0)
    queue = [ticket("2", "ann", cpus=1), ticket("3", "bob", cpus=3), ticket("4", "bob", cpus=3)]
    # Bob's two take 6 of 8 CPUs: with the first he holds 3, less than Ann's 4.
    assert order(running, *queue) == ["3", "4", "2"]


def test_a_share_is_the_largest_of_any_resource() -> None:
    """Ann's GPU is half of the GPUs, Bob's 3 CPUs are 3 of 8."""
    running = [
        ticket("1", "ann", held_since_s=0.0, wanted={"GPU": 1.0, "CPU": 1.0}),
        ticket("2", "bob", cpus=3, held_since_s=0.0),
    ]
    assert order(*running, ticket("3", "ann"), ticket("4", "bob")) == ["4", "3"]


def test_on_one_place_it_is_who_has_used_less_lately() -> None:
    queue = [ticket("1", "ann"), ticket("2", "ann"), ticket("3", "bob")]
    assert order(*queue, ann=600.0) == ["3", "1", "2"]
    assert order(*queue, ann=600.0, bob=900.0) == ["1", "3", "2"]


def test_usage_is_forgotten_by_half_lives() -> None:
    stored = {"amount_s": {"CPU": 100.0}, "at_s": 1000.0, "user": "ann"}
    now_s = 1000.0 + HALF_LIFE_S
    assert Usage.of(stored, now_s).amount_s == {"CPU": pytest.approx(50.0)}
    running = ticket("1", cpus=2, held_since_s=now_s - 10)
    assert Usage.of(stored, now_s).after(running).amount_s == {"CPU": pytest.approx(70.0)}
    assert Usage.of(None, now_s).after(ticket("2")).amount_s == {}


def test_what_was_moved_by_hand_stands_there() -> None:
    queue = [ticket("1", priority="high"), ticket("2"), ticket("3"), ticket("4", priority="low")]
    last = ticket("4", priority="low", before="", moved_ns=1)
    assert order(*queue[:3], last) == ["4", "1", "2", "3"]
    assert order(*queue[:3], ticket("4", before="2", moved_ns=1)) == ["1", "4", "2", "3"]
    both = [ticket("3", before="", moved_ns=1), ticket("4", before="3", moved_ns=2)]
    assert order(*queue[:2], *both) == ["4", "3", "1", "2"]
    assert order(*queue[:3], ticket("4", before="gone", moved_ns=1)) == ["4", "1", "2", "3"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob", "eve"]),
            st.sampled_from(PRIORITIES),
            st.sampled_from([1.0, 2.0, 8.0, 64.0]),
            st.sampled_from([None, "", "3", "7"]),
            st.booleans(),
        ),
        max_size=9,
    )
)
def test_each_waiting_run_has_one_place_whatever_the_others_are(
    drawn: list[tuple[str, Any, float, str | None, bool]],
) -> None:
    tickets = [
        ticket(
            str(n), user, cpus=cpus, priority=priority, before=before, moved_ns=n,
            held_since_s=1.0 if runs else None,
        )
        for n, (user, priority, cpus, before, runs) in enumerate(drawn)
    ]  # fmt: skip
    waiting = [each.run for each in tickets if each.waits]
    assert sorted(order(*tickets)) == sorted(waiting)
    assert order(*reversed(tickets)) == order(*tickets)  # All drivers see the same.


def test_runs_of_low_priority_give_way_the_youngest_first_and_only_if_it_helps() -> None:
    old = ticket("1", cpus=2, priority="low", held_since_s=10.0)
    young = ticket("2", cpus=2, priority="low", held_since_s=20.0)
    other = ticket("3", cpus=2, held_since_s=5.0)
    running, free = [old, young, other], {"CPU": 1.0}

    def give_way(cpus: float, **changes: Any) -> list[str]:
        waiting = ticket("4", cpus=cpus, **changes)
        return [each.run for each in to_yield(waiting, running, free=free)]

    assert give_way(1.0) == []  # There is room.
    assert give_way(3.0) == ["2"]
    assert give_way(5.0) == ["2", "1"]
    assert give_way(6.0) == []  # All that can give way are not enough.
    assert give_way(3.0, priority="low") == []
    assert give_way(3.0, wanted={"GPU": 1.0}) == []
