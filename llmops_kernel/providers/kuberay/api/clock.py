"""The API server's clock, on which users agree whatever their own say, and its pauses."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import httpx

_LONGEST_PAUSE_S: Final = 5.0
_REMEMBERED: Final = 8
_LONGEST_S: Final = 2.0
_BEGAN: Final = "llmops_began"


class ServerClock:
    """The time of an API server, from the `Date` of its newest answer."""

    def __init__(self) -> None:
        self._read: tuple[float, float] | None = None

    def read(self, response: httpx.Response) -> None:
        """Take the time from an answer."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, TypeError, ValueError):
            return
        # The header has whole seconds: half of one is the smallest mistake.
        self._read = (date.timestamp() + 0.5, time.monotonic())

    @property
    def age_s(self) -> float:
        """Return how long ago the server was asked."""
        return float("inf") if self._read is None else time.monotonic() - self._read[1]

    def now_s(self) -> float:
        """Return the server's Unix time; this machine's if no answer had one."""
        return time.time() if self._read is None else self._read[0] + self.age_s

    def ahead_s(self) -> float:
        """Return by how much this machine's clock is ahead of the server's."""
        return time.time() - self.now_s()


class RoundTrip:
    """Distance of an API server: the shortest round trip of its last answers.

    Longer ones contain its own work, or a handshake.
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def begin(self, request: httpx.Request) -> None:
        request.extensions[_BEGAN] = time.monotonic()

    def end(self, response: httpx.Response) -> None:
        began_s = response.request.extensions.get(_BEGAN)
        if began_s is not None:
            self._seen.append(time.monotonic() - began_s)

    @property
    def seconds(self) -> float:
        """Return the round trip; 0 before the first answer, and never more than 2 s."""
        return min([*self._seen, _LONGEST_S]) if self._seen else 0.0


def event_hooks(clock: ServerClock, round_trip: RoundTrip) -> dict[str, list[Callable[..., Any]]]:
    """Return httpx's hooks that keep both current."""
    return {"request": [round_trip.begin], "response": [clock.read, round_trip.end]}


def pause_s(answer: httpx.Response) -> float:
    """Return the pause that `Retry-After` asks for, bounded and with some jitter."""
    try:
        asked_s = float(answer.headers.get("Retry-After", "1"))
    except ValueError:
        asked_s = 1.0
    return min(max(asked_s, 0.05), _LONGEST_PAUSE_S) * random.uniform(1.0, 1.2)
