"""How long a stopped script may take, so that its driver still reports the end. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

STOP_WAIT_ENV_VAR = "RAY_JOB_STOP_WAIT_TIME_S"
"""Seconds from a stop until Ray kills the driver; `stop_wait_s` of a cluster template sets it."""
_RAY_DEFAULT_S = 3.0
_TERMINATE_S = 5.0


@dataclass(frozen=True)
class Patience:
    leave_s: float
    """From the request until a script that asks must have left."""
    terminate_s: float
    """From SIGTERM until SIGKILL."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Patience:
        """Divide the time that Ray gives; a part of it is left for the driver's own end."""
        try:
            wait_s = float(env.get(STOP_WAIT_ENV_VAR, _RAY_DEFAULT_S))
        except ValueError:
            wait_s = _RAY_DEFAULT_S
        terminate_s = min(_TERMINATE_S, wait_s / 5)
        return cls(leave_s=wait_s - 2 * terminate_s, terminate_s=terminate_s)
