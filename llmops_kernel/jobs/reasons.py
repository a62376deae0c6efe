"""What Ray says about a job that ended without a word, put so that one can act on it."""

from __future__ import annotations

import re
import signal

from llmops_kernel.jobs.client import Job, last_line
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.runs.view import RunView

_ERROR_LINE = re.compile(r"^\s*([\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)
_RESUME = "`run.retry()` goes on from the last checkpoint"
_TEXTS: dict[str, tuple[str, str]] = {
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": (
        "Ray found no place for the run's driver in time",
        "see with `llmops status` what the cluster is busy with, then `run.retry()`",
    ),
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": (
        "No node of the cluster can take the run's driver",
        "see with `llmops status` which nodes are there, then `run.retry()`",
    ),
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": (
        "The process that watches the driver could not be started",
        "see with `llmops status` how the cluster is, then `run.retry()`",
    ),
    "JOB_SUPERVISOR_ACTOR_DIED": (
        "The process that watches the driver died{where}: its node was lost or out of memory",
        f"see with `llmops status` how the cluster is; {_RESUME}",
    ),
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": (
        "Ray lost the run{where} and does not know why",
        f"see with `llmops status` how the cluster is; {_RESUME}",
    ),
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": (
        "The driver's process could not be started: {reason}",
        "see with `llmops doctor` what is wrong with this machine",
    ),
}


def end_of_job(job: Job, *, view: RunView) -> EndEvent:
    """The end of a run whose job is over and whose driver did not tell it."""
    if job.status == "SUCCEEDED":
        message = "Ray says that the driver ended well; the end of its journal is missing"
        return EndEvent(state="SUCCEEDED", message=message, last_step=view.last_step)
    if job.status == "STOPPED":
        message = f"Stopped{where(view)}, before the driver could tell that a checkpoint was saved"
        return EndEvent(
            state="STOPPED", message=message, remedy=_checkpoint(view), last_step=view.last_step
        )
    message, remedy = _failure(job, view=view)
    return EndEvent(state="FAILED", message=message, remedy=remedy, last_step=view.last_step)


def end_without_cluster(
    cluster: str, *, what: str, view: RunView, why: str = "", is_mirrored: bool = False
) -> EndEvent:
    """The end of a run whose cluster is gone; `what` tells how, as "went away".

    `is_mirrored`: its journal is what was read over the network until then.
    """
    told = f". {why}" if why else ""
    if is_mirrored:
        told = f"{told.rstrip('.')}. All that was read of its journal until then is kept here"
    return EndEvent(
        state="FAILED",
        message=f"The cluster {cluster!r} {what} while the run was {at(view)}{told}",
        remedy=f"`llmops up`, then {_checkpoint(view)}",
        last_step=view.last_step,
    )


def _failure(job: Job, *, view: RunView) -> tuple[str, str]:
    text = job.message or ""
    if job.error_type == "RUNTIME_ENV_SETUP_FAILURE":
        return _environment(text)
    if job.error_type in _TEXTS:
        message, remedy = _TEXTS[job.error_type]
        return message.format(where=where(view), reason=reason(text)), remedy
    code = job.driver_exit_code
    if code is None:
        return f"Ray ended the run{where(view)}: {reason(text)}", _RESUME
    if killed := _signal(code):
        cause = "the kernel's out-of-memory killer or somebody's `kill`"
        return (
            f"The driver was killed ({killed}){where(view)}: {cause}",
            f"see with `llmops status` whether the machine has memory left; {_checkpoint(view)}",
        )
    return (
        f"The driver ended with exit code {code}{where(view)}: {reason(text)}",
        "the driver's last words are in `run.logs()`",
    )


def _environment(text: str) -> tuple[str, str]:
    message = f"Ray could not prepare the run's files on a node: {reason(text)}"
    if "Failed to download" in text:
        return message, "`run.retry()` uploads again what the cluster has lost"
    if "No space left" in text:
        return message, "free space on the node's disk (Ray's temp dir), then `run.retry()`"
    return message, "`llmops status`, and runtime_env_setup-*.log in Ray's log folder, tell more"


def reason(text: str) -> str:
    """The last line that names an exception, else the last line at all."""
    errors = _ERROR_LINE.findall(text)
    return str(errors[-1]).strip()[:300] if errors else last_line(text)[:300]


def at(view: RunView) -> str:
    if view.last_step is not None:
        return f"at step {view.last_step}"
    open_phases = [span.name for span in view.phases() if span.end_s is None]
    return f"in phase {open_phases[-1]}" if open_phases else "starting"


def where(view: RunView) -> str:
    """Such as "at step 12", with a space in front, for the middle of a sentence."""
    return f" while the run was {at(view)}"


def _checkpoint(view: RunView) -> str:
    if not view.checkpoints:
        return "`run.retry()` begins anew, there is no checkpoint yet"
    return f"`run.retry()` goes on from the checkpoint of step {view.checkpoints[-1].step}"


def _signal(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
