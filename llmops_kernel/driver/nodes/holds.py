"""The nodes that an attempt holds: journaled when it begins and whenever they change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Literal

from llmops_kernel.config.models.section import NODE_PRICE_ENV_VAR, NodePrice
from llmops_kernel.driver.process_times import driver_times
from llmops_kernel.metrics.events import Event, HoldEvent

Node = tuple[str, str]
"""A node's id, and its price as it is in the environment of its processes."""


def this_node() -> Node:
    """Return the node of this process, which is connected to Ray."""
    import ray

    node_id = str(ray.get_runtime_context().get_node_id())
    return node_id, os.environ.get(NODE_PRICE_ENV_VAR, "")


def only_node() -> Node:
    """Return the node of a driver that does not use Ray itself.

    Its script may: what that holds on other nodes is not known, and so the cost is not.
    """
    price = NodePrice.read(os.environ)
    is_alone = price is not None and price.only_node
    return os.uname().nodename, os.environ[NODE_PRICE_ENV_VAR] if is_alone else ""


class NodeHolds:
    """Writes a hold's begin and end into the journal of the attempt."""

    def __init__(self, emit: Callable[[Event], object]) -> None:
        self._emit = emit
        self._driver_node: Node | None = None
        self._held: set[Node] = set()
        self._ended_s: dict[Node, float] = {}

    def begin(self, driver_node: Node) -> None:
        """Journal that the driver's node is held, from the start of the driver to its end."""
        self._driver_node = driver_node
        self._write(driver_node, "begin", since_s=driver_times()[0])

    def use(self, nodes: Iterable[Node], *, since_s: float = 0.0) -> None:
        """Journal the other nodes that are held from now on, or from `since_s` (Unix)."""
        current = {
            node for node in nodes if self._driver_node is None or node[0] != self._driver_node[0]
        }
        for node in sorted(current - self._held):
            # Not before its last end, which would close this hold too.
            self._write(node, "begin", since_s=max(since_s, self._ended_s.get(node, 0.0)))
        for node in sorted(self._held - current):
            self._ended_s[node] = time.time()
            self._write(node, "end", since_s=self._ended_s[node])
        self._held = current

    def _write(self, node: Node, state: Literal["begin", "end"], *, since_s: float = 0.0) -> None:
        price = NodePrice.read({NODE_PRICE_ENV_VAR: node[1]})
        self._emit(
            HoldEvent(
                node=node[0],
                state=state,
                node_hour=None if price is None else price.node_hour,
                currency="" if price is None else price.currency,
                time_s=since_s,
            )
        )
