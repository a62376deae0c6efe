"""Wait until another process or thread has done something."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    *,
    timeout_s: float = 400,
    report: Callable[[], str] = lambda: "it did not come true in time",
) -> T:
    """Return the first true value of the condition; fail with the report after `timeout_s`.

    The limit is long because machines may be busy: it is reached only where a test fails.
    """
    began_s = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - began_s
        assert waited_s < timeout_s, report()
        time.sleep(min(0.2, 0.01 + waited_s / 20))
    return value
