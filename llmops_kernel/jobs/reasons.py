"""End events for runs whose driver did not write one, from what Ray reports about the job."""

from __future__ import annotations

import re
import signal

from llmops_kernel.jobs.client import Job, last_line
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.store.journal.view import STOP_PHASE, RunView

_ERROR_LINE = re.compile(r"^\s*([\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)
MAX_CHARS = 300
_RESUME = "`llmops retry {run}` resumes from the last checkpoint"
_TEXTS: dict[str, tuple[str, str]] = {
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": (
        "Ray could not schedule the run's driver in time",
        "`llmops status` shows what the cluster is busy with; then `llmops retry {run}`",
    ),
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": (
        "No node of the cluster can run the driver",
        "`llmops status` shows the nodes; then `llmops retry {run}`",
    ),
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": (
        "Ray's job supervisor could not be started",
        "`llmops status` shows the cluster's state; then `llmops retry {run}`",
    ),
    "JOB_SUPERVISOR_ACTOR_DIED": (
        "Ray's job supervisor died{where}: its node was lost or ran out of memory",
        "`llmops status` shows the cluster's state; " + _RESUME,
    ),
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": (
        "Ray lost the run{where} and reports no reason",
        "`llmops status` shows the cluster's state; " + _RESUME,
    ),
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": (
        "The driver's process could not be started: {reason}",
        "`llmops doctor` checks this machine",
    ),
}


def end_of_job(job: Job, *, run_id: str, view: RunView) -> EndEvent:
    """Return the end of a run whose job has ended without an end event from its driver."""
    end = _end_of_job(job, view=view)
    return end.model_copy(update={"remedy": end.remedy.replace("{run}", run_id)})


def _end_of_job(job: Job, *, view: RunView) -> EndEvent:
    if job.status == "SUCCEEDED":
        message = (
            "Ray reports that the driver exited successfully; the end of its journal is missing"
        )
        return EndEvent(state="SUCCEEDED", message=message, last_step=view.last_step)
    if job.status == "STOPPED":
        message = f"Stopped{where(view)}; the driver did not report whether it saved a checkpoint"
        if not view.has_begun:
            message = "Stopped before the driver had started"
        return EndEvent(
            state="STOPPED", message=message, remedy=_checkpoint(view), last_step=view.last_step
        )
    message, remedy = _failure(job, view=view)
    return EndEvent(state="FAILED", message=message, remedy=remedy, last_step=view.last_step)


def end_without_cluster(
    cluster: str,
    *,
    run_id: str,
    what: str,
    view: RunView,
    why: str = "",
    is_mirrored: bool = False,
) -> EndEvent:
    """Return the end of a run whose cluster is gone; `what` is a verb such as "was deleted".

    `is_mirrored`: the journal here is what was read over the network until then.
    """
    more = f". {why}" if why else ""
    if is_mirrored:
        more = f"{more.rstrip('.')}. The part of its journal that was read before is kept here"
    return EndEvent(
        state="FAILED",
        message=f"The cluster {cluster!r} {what} while the run was {at(view)}{more}",
        remedy=f"`llmops up`, then {_checkpoint(view)}".replace("{run}", run_id),
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
        why = ", probably because its node ran out of memory" if killed == "SIGKILL" else ""
        return (
            f"The driver was killed ({killed}){where(view)}{why}",
            f"`llmops status` shows the memory that is left; {_checkpoint(view)}",
        )
    return (
        f"The driver ended with exit code {code}{where(view)}: {reason(text)}",
        "`llmops logs {run}` shows the end of the driver's output",
    )


def _environment(text: str) -> tuple[str, str]:
    message = f"Ray could not prepare the run's files on a node: {reason(text)}"
    if "Failed to download" in text:
        return message, "`llmops retry {run}` uploads the files again"
    if "No space left" in text:
        return message, "free space on the node's disk (Ray's temp dir), then `llmops retry {run}`"
    return message, "see `llmops status`, and runtime_env_setup-*.log in Ray's log folder"


def reason(text: str) -> str:
    """Return the last line that names an exception, else the last line."""
    errors = _ERROR_LINE.findall(text)
    return _shortened(str(errors[-1]).strip() if errors else last_line(text))


def _shortened(text: str) -> str:
    """Return the text, cut after a word where it is long."""
    if len(text) <= MAX_CHARS:
        return text
    return f"{text[:MAX_CHARS].rsplit(' ', 1)[0]} …"


def at(view: RunView) -> str:
    """Return "at step 12", "in phase data" or "starting"."""
    if view.last_step is not None:
        return f"at step {view.last_step}"
    spans = [span for span in view.phases() if span.name != STOP_PHASE]
    open_phases = [span.name for span in spans if span.end_s is None]
    return f"in phase {open_phases[-1]}" if open_phases else "starting"


def where(view: RunView) -> str:
    """Return " while the run was at step 12", with the space in front."""
    return f" while the run was {at(view)}"


def _checkpoint(view: RunView) -> str:
    if not view.checkpoints:
        return "`llmops retry {run}` starts from the beginning, there is no checkpoint yet"
    step = view.checkpoints[-1].step
    return f"`llmops retry {{run}}` resumes from the checkpoint of step {step}"


def _signal(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
