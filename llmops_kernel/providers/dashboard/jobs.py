"""Ray's jobs in readable form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

RUN_KEY: Final = "llmops_run"
"""Key in a job's metadata: the run that it is an attempt of."""
USER_KEY: Final = "llmops_user"
"""Who submitted it, as their machine calls them."""
_ENTRYPOINT_CHARS: Final = 60
_SHOWN: Final = 20
_ACTIVE: Final = frozenset({"PENDING", "RUNNING"})
_RUN_LINE: Final = re.compile(r"(run (\S+)(?: of .*)?) \(running\)")


def described_job(job: Mapping[str, Any]) -> str:
    """Return `run lora-1 (running)`, or the kind and entrypoint of a job that is no run."""
    state = str(job.get("status", "")).lower()
    metadata = job.get("metadata") or {}
    if run_id := metadata.get(RUN_KEY):
        user = one_line(str(metadata.get(USER_KEY) or ""))
        return f"run {run_id}{f' of {user}' if user else ''} ({state})"
    if job.get("type") == "DRIVER":
        return f"job {job.get('job_id')} ({state}): a notebook or script that is connected to it"
    shown = one_line(str(job.get("entrypoint") or ""))
    return f"job {job.get('submission_id')} ({state}): {shown}"


def with_run_states(lines: Sequence[str], state_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return lines of `described_job` with the state that each run has itself.

    To Ray a job is running whose run waits in the queue. `state_of` gets a run's id and returns
    None where that is not known.
    """
    return tuple(_with_state(line, state_of) for line in lines)


def _with_state(line: str, state_of: Callable[[str], str | None]) -> str:
    found = _RUN_LINE.match(line)
    state = state_of(found[2]) if found else None
    return f"{found[1]} ({state}){line[found.end() :]}" if found and state else line


def is_active(job: Mapping[str, Any]) -> bool:
    return job.get("status") in _ACTIVE


def described_active(jobs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what runs or waits, the newest first; of many only some."""
    active = sorted(filter(is_active, jobs), key=lambda job: -(job.get("start_time") or 0))
    more = (f"and {len(active) - _SHOWN} more",) if len(active) > _SHOWN else ()
    return (*map(described_job, active[:_SHOWN]), *more)


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ENTRYPOINT_CHARS else f"{line[: _ENTRYPOINT_CHARS - 1]}…"
