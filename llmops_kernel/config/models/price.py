"""What a node of a cluster costs, and how its processes learn it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field, ValidationError

from llmops_kernel.config.models.section import Section

NODE_PRICE_ENV_VAR: Final = "LLMOPS_NODE_PRICE"
"""Set on each node that has a price: so a node keeps the one it was started with, whatever the
template says later."""


class Price(Section):
    """The price of a node; runs show their cost so far with it."""

    shorthand = "node_hour"

    node_hour: float | None = Field(default=None, gt=0)
    """Price of one node for one hour; `null`: runs show no cost."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Currency of the price: three capital letters."""

    @property
    def words(self) -> str:
        """`2.5 USD an hour`; empty without a price."""
        return "" if self.node_hour is None else f"{self.node_hour:g} {self.currency} an hour"


class NodePrice(Price):
    """The price of this node, as its processes find it in their environment."""

    only_node: bool = False
    """Whether the cluster can have no other node."""

    @classmethod
    def of(cls, price: Price, *, only_node: bool) -> Self:
        return cls(node_hour=price.node_hour, currency=price.currency, only_node=only_node)

    def environment(self) -> dict[str, str]:
        """Return the variable that a node is started with; none without a price."""
        if self.node_hour is None:
            return {}
        return {NODE_PRICE_ENV_VAR: self.model_dump_json()}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the price; None without one that can be read."""
        try:
            return cls.model_validate_json(environment.get(NODE_PRICE_ENV_VAR, ""))
        except ValidationError:
            return None
