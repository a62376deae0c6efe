"""Things that go wrong on demand."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass

from tests.k8s.standin.objects.errors import ApiError

_NO_REFUSALS = frozenset({"slow", "clock", "lose"})


@dataclass
class Fault:
    """One fault: which requests it meets, how often, and what it does to them."""

    kind: str
    path: str = ""
    """Regular expression that the path (with its query) must contain."""
    method: str = ""
    verb: str = ""
    user: str = ""
    count: int | None = None
    """How many requests it meets; None: until it is healed."""
    share: float = 1.0
    """Of these requests, chosen at random."""
    seconds: float = 1.0
    retry_after: int = 1
    code: int = 500
    message: str = ""
    limit: int = 0
    """Bytes that a request body may have at most."""
    until: float = float("inf")

    def meets(self, method: str, path: str, verb: str, user: str) -> bool:
        return (
            self.count != 0
            and time.monotonic() < self.until
            and self.method in ("", method)
            and self.verb in ("", verb)
            and self.user in ("", user)
            and re.search(self.path, path) is not None
            and (self.share == 1.0 or random.random() < self.share)
        )


class Faults:
    """The faults that are on."""

    def __init__(self) -> None:
        self.active: list[Fault] = []

    def add(self, fault: Fault) -> None:
        self.active.append(fault)

    def heal(self) -> None:
        self.active.clear()

    def delay(self, method: str, path: str, verb: str, user: str) -> float:
        slow = [f for f in self.active if f.kind == "slow" and f.meets(method, path, verb, user)]
        for fault in slow:
            _spend(fault)
        return sum(fault.seconds for fault in slow)

    def loses(self, method: str, path: str, verb: str, user: str) -> bool:
        """Return whether the answer to a request that is carried out never arrives."""
        met = [f for f in self.active if f.kind == "lose" and f.meets(method, path, verb, user)]
        for fault in met:
            _spend(fault)
        return bool(met)

    def clock_s(self) -> float:
        """By how much the server's clock is ahead."""
        return sum(fault.seconds for fault in self.active if fault.kind == "clock")

    def refusal(
        self, method: str, path: str, verb: str, user: str, size: int
    ) -> ApiError | str | None:
        """What to answer instead: an error, `drop` for a cut connection, None for nothing."""
        for fault in self.active:
            if fault.kind in _NO_REFUSALS or not fault.meets(method, path, verb, user):
                continue
            if fault.kind == "too-large" and size <= fault.limit:
                continue
            _spend(fault)
            return "drop" if fault.kind == "drop" else _error(fault)
        return None


def _spend(fault: Fault) -> None:
    if fault.count is not None:
        fault.count -= 1


def _error(fault: Fault) -> ApiError:
    wait = {"Retry-After": str(fault.retry_after)}
    details = {"retryAfterSeconds": fault.retry_after}
    match fault.kind:
        case "429":
            text = "Too many requests, please try again later."
            return ApiError(429, "TooManyRequests", text, details=details, headers=wait)
        case "503":
            text = fault.message or "apiserver is shutting down"
            return ApiError(503, "ServiceUnavailable", text, details=details, headers=wait)
        case "deny":
            return ApiError(403, "Forbidden", fault.message or "forbidden: denied by a fault")
        case "too-large":
            text = f"Request entity too large: limit is {fault.limit}"
            return ApiError(413, "RequestEntityTooLarge", text)
    return ApiError(fault.code, "InternalError", fault.message or "an error on demand")
