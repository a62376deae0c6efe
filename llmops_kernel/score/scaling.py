"""When a further replica of the engine is started. Time is an argument."""

from __future__ import annotations

EVERY_S = 5.0
"""Between two starts."""
TRIES = 3
"""How often a replica may fail to load before no further one is started."""
_LONGER = 4.0


class Scaling:
    """Waits longer after each replica that could not load, and gives up at last."""

    def __init__(self, most: int, *, parts_at_once: int, now_s: float) -> None:
        """`most`: replicas that the config allows; each works on `parts_at_once`."""
        self._most, self._parts_at_once = most, parts_at_once
        self._failures = 0
        self._next_s = now_s + EVERY_S

    def is_due(self, now_s: float, *, count: int, parts_left: int) -> bool:
        """Return whether a further replica is allowed, has work, and it is time for it.

        `count`: replicas that are there.
        """
        has_work = parts_left > count * self._parts_at_once
        return count < self._most and has_work and not self.gave_up and now_s >= self._next_s

    @property
    def gave_up(self) -> bool:
        return self._failures >= TRIES

    def looked(self, now_s: float) -> None:
        """A replica was started, or the cluster had no room for one."""
        self._next_s = now_s + EVERY_S

    def failed(self, now_s: float) -> bool:
        """A replica could not load; return whether it is the first one."""
        self._failures += 1
        self._next_s = now_s + EVERY_S * _LONGER**self._failures
        return self._failures == 1
