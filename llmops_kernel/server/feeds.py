"""What can be subscribed to: a source shared by all browsers, read once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]
Cursor = Any
"""A feed's own note of what a subscriber has seen; None for one that has seen nothing."""


@dataclass(frozen=True)
class Frame:
    """One message of a feed; with a payload it travels in binary."""

    kind: str
    data: Json
    payload: bytes | None = None


class Feed(Protocol):
    """`poll` and `news` are called in worker threads, never two at once of one feed."""

    period_s: float
    """Between two polls while somebody is subscribed."""

    def poll(self) -> None:
        """Look at the world. An LLMOpsError is told to subscribers; what was known stays."""

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        """What a subscriber has not seen yet, and its new cursor.

        `have` is what a new subscriber says it has from an earlier connection.
        """

    def close(self) -> None:
        """Nobody is subscribed any more."""
