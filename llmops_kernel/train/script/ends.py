"""The end of a script's run: stopped, killed, or left with a status."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmops_kernel.metrics.events import EndEvent, FailureEvent


def stopped_end(stopped: Any, *, newest: Any) -> EndEvent:
    """Return the end of a script that left after `track.should_stop()`.

    Both are what it put on the board: where it was asked to stop, and its newest checkpoint.
    """
    step, checkpoint_step = _step(stopped), _step(newest)
    if not step:
        return EndEvent(state="STOPPED", message="Stopped before the first step.")
    if checkpoint_step is None or checkpoint_step < step:
        return EndEvent(
            state="STOPPED",
            message=f"Stopped at step {step}, without a checkpoint of it.",
            remedy="call track.checkpoint(path) before the script exits, so that `llmops retry`"
            " can resume there",
            last_step=step,
        )
    return EndEvent(
        state="STOPPED",
        message=f"Stopped at step {step}, after saving a checkpoint.",
        remedy="`llmops retry` resumes from it",
        last_step=step,
    )


def _step(value: Any) -> int | None:
    return value.get("step") if isinstance(value, dict) else None


def ended_at_once() -> EndEvent:
    """Return the end of a script that never asks whether to stop."""
    return EndEvent(
        state="STOPPED",
        message="Stopped. The script does not call track.should_stop(), so it was stopped at once"
        " and nothing was saved"
        ".",
        remedy="call it once per step; when it returns True, save a checkpoint and exit",
    )


def did_not_leave(limit_s: float) -> EndEvent:
    """Return the end of a script that asks, but had not left in time."""
    return EndEvent(
        state="STOPPED",
        message=f"Stopped. The script was still running {limit_s:.0f} s after the request, so it"
        " was ended; what it had not saved is lost.",
        remedy="leave soon after track.should_stop() returns True; a larger stop_wait_s in the"
        " cluster template gives it more time",
    )


def ended_stalled(run_id: str) -> EndEvent:
    """Return the end of a run whose workers make no step, and so cannot follow a stop."""
    return EndEvent(
        state="STOPPED",
        message="Stopped while no step ended: the workers saved no checkpoint.",
        remedy=f"`llmops retry {run_id}` goes on from the last checkpoint",
    )


def signal_failure(signum: int, *, script: str) -> FailureEvent:
    """Return the failure of a process that a signal ended."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(signum).name
        if signum == signal.SIGKILL:
            message = f"{script} was killed by signal 9, probably because memory ran out."
            remedy = "lower the batch size, or use a node with more memory"
        else:
            message = f"{script} was terminated by signal {signum} ({name})."
            remedy = "the last lines of `llmops logs` may show the reason"
        return FailureEvent(error=name, message=message, remedy=remedy)
    return FailureEvent(error="Signal", message=f"{script} was terminated by signal {signum}.")


def exit_failure(status: int, *, script: str) -> FailureEvent:
    """Return the failure of a process that left without describing it."""
    return FailureEvent(
        error="SystemExit",
        message=f"{script} exited with status {status}.",
        remedy="the last lines of `llmops logs` are what the script printed before",
    )


# --- Time limits of a stopped script. Pure ---


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
