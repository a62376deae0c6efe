"""The figure of money: the same for each kind, and none where it is not known."""

from __future__ import annotations

import pytest

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import AnyEvent, HoldEvent, PhaseEvent
from llmops_kernel.server.runs.routes import figures as compared
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views.figures import compared_figures, live_figures
from tests.store.events import end, start, steps

KINDS = ("train", "script", "score")


def held(kind: str, *more: AnyEvent, price: float | None = 36.0, currency: str = "USD") -> RunView:
    """Return a run whose driver holds one node from second 100 on."""
    begin = HoldEvent(
        node="n",
        state="begin",
        node_hour=price,
        currency=currency if price else "",
        time_s=100.0,
        stream="1-driver",
        seq=1,
    )
    return kind_named(kind).view([begin, *more], kind=kind)


def cost_of(view: RunView) -> tuple[str, str]:
    (live,) = [one for one in live_figures(view) if one.label == "cost so far"]
    (after,) = [one for one in compared_figures(view) if one.label == "cost so far"]
    assert live == after
    return live.text, live.hint


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_shows_it(kind: str) -> None:
    view = held(kind, end("SUCCEEDED", time_s=300.0, seq=2))
    text, hint = cost_of(view)
    assert text == "2.00 USD"
    assert "counts whole" in hint
    assert view.summary()["cost"] == {
        "money": 2.0,
        "currency": "USD",
        "node_hours": pytest.approx(200 / 3600),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_price_it_is_a_dash(kind: str) -> None:
    text, hint = cost_of(held(kind, end("SUCCEEDED", time_s=300.0, seq=2), price=None))
    assert text == "–"
    assert "`price`" in hint


def test_a_running_run_counts_up_to_its_newest_event() -> None:
    view = held("train", start(), *steps(1, 100))
    assert cost_of(view)[0] == "1.00 USD"
    view.apply(steps(101, 150))
    assert cost_of(view)[0] == "1.50 USD"


def test_a_killed_driver_costs_nothing_after_its_last_event() -> None:
    """The reader who sees much later that it has ended writes that in a stream of its own."""
    noticed = end("FAILED", stream="1-observer", time_s=9e6, seq=1)
    asked = PhaseEvent(name="stop", state="begin", time_s=8e6, stream="1-observer", seq=2)
    view = held("train", start(), *steps(1, 100), noticed, asked)
    assert view.is_terminal
    assert cost_of(view)[0] == "1.00 USD"


def test_the_driver_is_right_about_its_end() -> None:
    """Also where the clock of another node is ahead by an hour."""
    ahead = steps(1, 2, start_s=3700.0)
    assert cost_of(held("train", start(), *ahead, end("STOPPED", time_s=200.0)))[0] == "1.00 USD"


def test_a_retry_adds_up_and_its_time_in_the_queue_does_not() -> None:
    again = held("train").cost
    assert again.money == 0
    queued = PhaseEvent(
        name="upload", state="begin", time_s=9e5, stream="2-client", seq=1, attempt=2
    )
    second = HoldEvent(
        node="n",
        state="begin",
        node_hour=36.0,
        currency="USD",
        time_s=1e6,
        stream="2-driver",
        seq=1,
        attempt=2,
    )
    view = held("train", end("FAILED", time_s=200.0, seq=2), queued)
    assert cost_of(view)[0] == "1.00 USD"
    view.apply([second, end("SUCCEEDED", stream="2-driver", time_s=1e6 + 50, seq=2)])
    assert cost_of(view)[0] == "1.50 USD"


def test_two_currencies_are_not_compared() -> None:
    done = end("SUCCEEDED", time_s=200.0, seq=2)
    views = [held("train", done), held("train", done, currency="EUR"), held("train", done)]
    dollars, euros = [one for one in compared(views) if one.label == "cost so far"]
    assert dollars.texts == ["1.00 USD", "–", "1.00 USD"]
    assert dollars.changes == ["same", "–", "same"]
    assert euros.texts == ["–", "1.00 EUR", "–"]
    assert euros.changes == ["–", "–", "–"]
