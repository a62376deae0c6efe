"""On which nodes the replicas and scorers of a scoring are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from llmops_kernel.driver.nodes.holds import Node, NodeHolds


class LiveNodes:
    """Keeps the nodes of the engines and scorers, which Ray may start again on another node."""

    def __init__(self, holds: NodeHolds) -> None:
        self._holds = holds
        self._begun_s = time.time()
        self._nodes: dict[tuple[str, int], Node] = {}

    def loaded(self, index: int, facts: Mapping[str, Any]) -> None:
        """A replica is ready: its node was held while it loaded, unless it was loaded before."""
        self._nodes["engine", index] = facts["node"]
        load_s = facts.get("load_s") or 0.0
        since_s = max(self._begun_s, time.time() - load_s)
        self._holds.use(self._nodes.values(), since_s=since_s)

    def seen(
        self, facts: Mapping[int, Mapping[str, Any]], progress: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Take what engines and scorers report; of one that does not answer the last is kept."""
        self._nodes |= {("engine", index): one["node"] for index, one in facts.items()}
        self._nodes |= {("scorer", index): one["node"] for index, one in progress.items()}
        self._holds.use(self._nodes.values())
