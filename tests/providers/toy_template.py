"""The toy provider's cluster templates, with a field that no other provider has."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.config.models.section import Broken


class ToyTemplate(AnyTemplate):
    """What `llmops up` writes into the file of toys."""

    example: ClassVar = {"head": "http://127.0.0.1:8265"}

    name: str = Field(default="toy", pattern="^[a-z]+$")
    """Name of the toy."""
    provider: Literal["toy"] = "toy"
    """Provider of the cluster: `toy` writes a line into a file."""
    head: str = Field(min_length=1)
    """Address of the dashboard of a Ray that is running."""
    spare: bool = False
    """Whether lists leave the toy out."""

    def broken_rules(self) -> list[Broken]:
        if self.head.startswith("http"):
            return []
        return [Broken(path="head", message="not an address", suggestion="begin it with http://")]

    def effect(self) -> list[str]:
        return [f"Toy {self.name}, whose head is {self.head}."]
