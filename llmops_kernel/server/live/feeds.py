"""The feeds that browsers can subscribe to: each is read once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from llmops_kernel.server.wire.common import Wire
from llmops_kernel.server.wire.live import LivePayloads

Json = dict[str, Any]
Cursor = Any
"""A feed's own note of what a subscriber has seen; None for one that has seen nothing."""


@dataclass(frozen=True)
class Frame:
    """One message of a feed; with a payload it is sent in binary. Made by `frame`."""

    kind: str
    data: Json
    payload: bytes | None = None


FrameKind = Literal[
    "clusters", "operations", "runs", "state", "rows", "chat", "trouble", "fine", "error", "pong"
]


def frame(kind: FrameKind, data: Wire, payload: bytes | None = None) -> Frame:
    """Return a message. Raises TypeError when LivePayloads has another model for its kind."""
    expected = LivePayloads.model_fields[kind].annotation
    if type(data) is not expected:
        raise TypeError(f"a message {kind!r} carries {expected}, not {type(data)}")
    return Frame(kind, data.model_dump(mode="json"), payload)


class Feed(Protocol):
    """`poll` and `news` are called in worker threads, never two at once of one feed."""

    period_s: float
    """Seconds between two polls while there is a subscriber."""

    def poll(self) -> None:
        """Read the source. Subscribers are sent an LLMOpsError; what they have stays."""

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        """Return what a subscriber has not seen yet, and its new cursor.

        `have` is what a new subscriber already has from an earlier connection.
        """

    def close(self) -> None:
        """Nobody is subscribed any more."""
