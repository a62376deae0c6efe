"""Ray's jobs in readable form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RUN_KEY: Final = "llmops_run"
"""Key in a job's metadata: the run that it is an attempt of."""
_ENTRYPOINT_CHARS: Final = 60


def described_job(job: Mapping[str, Any]) -> str:
    """Return `run lora-1 (running)`, or the kind and entrypoint of a job that is no run."""
    state = str(job.get("status", "")).lower()
    if run_id := (job.get("metadata") or {}).get(RUN_KEY):
        return f"run {run_id} ({state})"
    if job.get("type") == "DRIVER":
        return f"job {job.get('job_id')} ({state}): a notebook or script that is connected to it"
    line = " ".join(str(job.get("entrypoint") or "").split())
    shown = line if len(line) <= _ENTRYPOINT_CHARS else f"{line[: _ENTRYPOINT_CHARS - 1]}…"
    return f"job {job.get('submission_id')} ({state}): {shown}"
