"""How busy this machine is, and how much longer things may take on it."""

from __future__ import annotations

import os

_MOST = 10.0


def load_per_core() -> float | None:
    """Return how many processes want to run for each core that this one may use.

    None where the system does not say. In a container it is the load of the host.
    """
    try:
        cores = len(os.sched_getaffinity(0))
        return os.getloadavg()[0] / max(1, cores)
    except (OSError, AttributeError):
        return None


def is_loaded() -> bool:
    """Return whether more processes want to run than there are cores."""
    return (load_per_core() or 0.0) > 1.0


def patience_s(usual_s: float, *, most: float = _MOST) -> float:
    """Return how long to wait for what takes `usual_s` at most on a machine that is not busy."""
    return usual_s * min(most, max(1.0, load_per_core() or 1.0))


def busy_words() -> str:
    """Return `this machine is busy: load 21.3 on 2 cores`; empty if it is not."""
    per_core = load_per_core()
    if per_core is None or per_core < 1.5:
        return ""
    cores = len(os.sched_getaffinity(0))
    return f"this machine is busy: load {per_core * cores:.1f} on {cores} core{'s'[: cores != 1]}"
