"""What a driver journals about the nodes that it holds."""

from __future__ import annotations

import time

import pytest

from llmops_kernel.config.models.section import NODE_PRICE_ENV_VAR, NodePrice, Price
from llmops_kernel.driver.nodes import NodeHolds, only_node
from llmops_kernel.metrics.events import Event, HoldEvent

PRICE = NodePrice(node_hour=2.5, currency="EUR", only_node=True).environment()[NODE_PRICE_ENV_VAR]
DRIVER, ONE, TWO = ("driver", PRICE), ("one", PRICE), ("two", "")


@pytest.fixture
def written() -> list[HoldEvent]:
    return []


@pytest.fixture
def holds(written: list[HoldEvent]) -> NodeHolds:
    def emit(event: Event) -> None:
        assert isinstance(event, HoldEvent)
        written.append(event)

    holds = NodeHolds(emit)
    holds.begin(DRIVER)
    return holds


def changes(written: list[HoldEvent]) -> list[tuple[str, str]]:
    return [(event.node, event.state) for event in written]


def test_only_changes_are_written(holds: NodeHolds, written: list[HoldEvent]) -> None:
    holds.use([ONE, ONE])
    holds.use([ONE, TWO, DRIVER])
    holds.use([TWO])
    holds.use([])
    assert changes(written) == [
        ("driver", "begin"),
        *(("one", "begin"), ("two", "begin"), ("one", "end"), ("two", "end")),
    ]
    assert [event.node_hour for event in written] == [2.5, 2.5, None, 2.5, None]
    assert {event.currency for event in written} == {"EUR", ""}


def test_the_driver_holds_its_node_from_its_start(written: list[HoldEvent]) -> None:
    NodeHolds(written.append).begin(DRIVER)
    assert 0 < written[0].time_s < time.time()


def test_a_replica_holds_its_node_while_it_loads(
    holds: NodeHolds, written: list[HoldEvent]
) -> None:
    since_s = time.time() - 50
    holds.use([ONE], since_s=since_s)
    assert written[-1].time_s == since_s
    holds.use([])
    # Not again for the time before it was released.
    holds.use([ONE], since_s=since_s)
    assert written[-1].time_s == written[-2].time_s > since_s


def test_a_script_alone_on_the_only_node_knows_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_PRICE_ENV_VAR, PRICE)
    assert only_node()[1] == PRICE


def test_a_script_may_use_nodes_that_it_does_not_report(monkeypatch: pytest.MonkeyPatch) -> None:
    of_many = NodePrice.of(Price(node_hour=2.5), only_node=False).environment()
    monkeypatch.setenv(NODE_PRICE_ENV_VAR, of_many[NODE_PRICE_ENV_VAR])
    assert only_node()[1] == ""
    monkeypatch.delenv(NODE_PRICE_ENV_VAR)
    assert only_node()[1] == ""


@pytest.mark.parametrize("text", ["", "2.5", "{", '{"node_hour": -1}', '{"node_hour": "x"}'])
def test_a_price_that_cannot_be_read_is_not_known(text: str) -> None:
    found = NodePrice.read({NODE_PRICE_ENV_VAR: text})
    assert found is None or found.node_hour == 2.5
