"""Rates of a run from its counts: rows and tokens per second over the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_S = 15.0
COUNTS = ("rows", "prompt_tokens", "output_tokens")


class Rates:
    """A window over counts that only grow; time is an argument."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, dict[str, float]]] = deque()

    def add(self, now_s: float, counts: Mapping[str, float]) -> None:
        # Rows of a part that was lost are counted again.
        if self._seen and counts["rows"] < self._seen[-1][1]["rows"]:
            self._seen.clear()
        self._seen.append((now_s, dict(counts)))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > self._window_s:
            self._seen.popleft()

    def per_second(self, name: str) -> float | None:
        """Return the rate; None before two different moments are known."""
        if len(self._seen) < 2:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        if last_s - first_s <= 0 or name not in first or name not in last:
            return None
        return max(0.0, (last[name] - first[name]) / (last_s - first_s))
