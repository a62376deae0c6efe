"""Writes the end of a run whose driver or cluster died before it could."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from llmops_kernel.errors import ClusterError, ClusterNotFoundError, LLMOpsError, StoreError
from llmops_kernel.jobs.client import MAX_LOG_LINES, Job, JobsClient, last_line
from llmops_kernel.jobs.follow import Follower, keep_log, live_log, saved_log
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, ClusterState
from llmops_kernel.providers.registry import shares_disk
from llmops_kernel.store.files import write_whole
from llmops_kernel.store.journal.view import FEW_CELLS, STOP_PHASE, RunView
from llmops_kernel.store.record import Attempt
from llmops_kernel.store.store import RunStore, was_abandoned

GRACE_S = 2.0
"""How long to wait for the last lines of a journal after the job has ended."""
SUBMIT_LIMIT_S = 900.0
"""A client that has not submitted its run to Ray after this time has died."""
ABANDONED_S = 15.0
"""A job that a client posted and did not live to hear of is in Ray's list after this time."""
CHECK_PERIOD_S = 5.0
DRIVER_EXIT_S = 5.0
"""A driver still writes a few lines of log after its end event."""


class Observer:
    """Compares a run's journal with its cluster's state. Several may watch one run."""

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        *,
        provider: ClusterProvider,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.time,
        on_info: Callable[[ClusterInfo], None] = lambda _: None,
    ) -> None:
        """Observe a run; `on_info` hears what the cluster reports, in the thread of the check."""
        self._store = store
        self._run_id = store.resolve(run_id)
        self._provider = provider
        self._grace_s = grace_s
        self._clock = clock
        self._on_info = on_info
        self._follower = Follower(store, self._run_id, remote=False, max_cells=FEW_CELLS)
        self._lock = threading.Lock()
        self._due_s = 0.0

    def nudge(self) -> None:
        """Start a check in the background if one is due; return at once."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + CHECK_PERIOD_S
        name = f"llmops-observer-{self._run_id}"
        threading.Thread(target=self._check_quietly, name=name, daemon=True).start()

    def _check_quietly(self) -> None:
        with suppress(LLMOpsError):  # A view must not fail because a check failed.
            self.check()

    def check(self) -> EndEvent | None:
        """Return how the newest attempt ended; None while it runs or while that is unknown.

        Write the end to the journal, once, if the run itself did not.
        """
        with self._lock:
            self._follower.poll()
            attempts = self._store.attempts(self._run_id)
            if not attempts:
                return self._never_handed_over()
            attempt = attempts[-1]
            with suppress(ClusterError):
                return self._check(attempt)
            return None

    def _check(self, attempt: Attempt) -> EndEvent | None:
        if self._ended(attempt.number):
            with suppress(ClusterError):
                self._save_log(attempt)
            return self._follower.view.end
        event = self._judge(attempt)
        if event is None:
            return None
        self._wait_for_last_lines(attempt.number)
        if self._ended(attempt.number):
            return self._follower.view.end
        # The lines read meanwhile may have later steps.
        event = self._judge(attempt)
        return event and self._journal(event, attempt=attempt.number)

    def _ended(self, attempt: int) -> bool:
        self._follower.poll()
        view = self._follower.view
        return view.attempt >= attempt and view.is_terminal

    def _wait_for_last_lines(self, attempt: int) -> None:
        """Wait until the end arrives, or until nothing has arrived for the grace time."""
        quiet_until_s = time.monotonic() + self._grace_s
        while time.monotonic() < quiet_until_s:
            if self._follower.poll():
                quiet_until_s = time.monotonic() + self._grace_s
            if self._ended(attempt):
                return
            time.sleep(0.1)

    def _journal(self, event: EndEvent, *, attempt: int) -> EndEvent | None:
        journal = self._store.folder(self._run_id).journal
        append_as_observer(journal, event, attempt=attempt, unless=lambda: self._ended(attempt))
        return self._follower.view.end if self._ended(attempt) else None

    def _judge(self, attempt: Attempt) -> EndEvent | None:
        view = self._follower.view
        try:
            info = self._provider.get(attempt.full_name)
        except ClusterNotFoundError:
            return self._end_by_cluster(attempt, verb="no longer exists")
        self._on_info(info)
        if info.is_gone:
            verb = "was stopped" if info.state == ClusterState.STOPPED else "died"
            return self._end_by_cluster(attempt, verb=verb, reason=info.message)
        if not (info.is_ready or info.head_runs):
            return None
        with self._client(attempt) as client:
            job = client.get(attempt.submission_id)
            if job is None:
                return self._unknown_job(attempt)
            if not job.is_terminal:
                return None
            self._keep_log(client, job, attempt=attempt)
        return end_of_job(job, run_id=self._run_id, view=view)

    def _is_shared(self) -> bool:
        return shares_disk(self._store.record(self._run_id).provider)

    def _end_by_cluster(self, attempt: Attempt, *, verb: str, reason: str = "") -> EndEvent | None:
        is_shared = self._is_shared()
        if is_shared and self._store.record(self._run_id).host != socket.gethostname():
            return None  # Another machine's local cluster cannot be checked from here.
        return end_without_cluster(
            attempt.cluster,
            run_id=self._run_id,
            verb=verb,
            view=self._follower.view,
            reason=reason,
            is_mirrored=not is_shared,
        )

    def _unknown_job(self, attempt: Attempt) -> EndEvent | None:
        view = self._follower.view
        phases = {span.name: span for span in view.phases(attempt.number)}
        if "pending" not in phases or phases["pending"].end_s is None:
            begun_s = max([attempt.submitted_s, *(span.begin_s for span in phases.values())])
            # Its client may be uploading.
            return _never(self._run_id, view.last_step) if self._is_left(begun_s) else None
        return self._end_by_cluster(attempt, verb="was restarted")

    def _never_handed_over(self) -> EndEvent | None:
        if not self._is_left(self._store.record(self._run_id).created_s):
            return None
        return self._journal(_never(self._run_id, None), attempt=1)

    def _is_left(self, last_s: float) -> bool:
        """Return whether the client that wrote its last word at `last_s` is gone."""
        silent_s = self._clock() - last_s
        if silent_s < ABANDONED_S:
            return False
        return silent_s >= SUBMIT_LIMIT_S or was_abandoned(self._store.root, self._run_id)

    def _client(self, attempt: Attempt) -> JobsClient:
        return JobsClient(self._provider.connect(attempt.full_name), cluster=attempt.cluster)

    def _save_log(self, attempt: Attempt) -> None:
        """Keep the driver's last words: the cluster's copy dies with it."""
        if saved_log(self._store.folder(self._run_id), attempt.number).exists():
            return
        with self._client(attempt) as client:
            job = client.get(attempt.submission_id)
            deadline_s = time.monotonic() + DRIVER_EXIT_S
            while job and not job.is_terminal and time.monotonic() < deadline_s:
                time.sleep(0.5)
                job = client.get(attempt.submission_id)
            if job:
                self._keep_log(client, job, attempt=attempt)

    def _keep_log(self, client: JobsClient, job: Job, *, attempt: Attempt) -> None:
        path = saved_log(self._store.folder(self._run_id), attempt.number)
        live = live_log(self._store.record(self._run_id), attempt)
        if live is not None and live.stat().st_size:
            with suppress(OSError):
                keep_log(live, path)
            return
        text = client.driver_log(job, lines=MAX_LOG_LINES)
        if not text and not path.exists():
            text = job.message or ""  # The driver never ran: Ray's own words are all there is.
        if text:
            with suppress(OSError, StoreError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, text.encode())


def _never(run_id: str, last_step: int | None) -> EndEvent:
    return EndEvent(
        state="FAILED",
        message="The client exited before it had submitted the run to Ray",
        remedy=f"`llmops retry {run_id}` submits it again",
        last_step=last_step,
    )


# --- End events for runs whose driver wrote none, from Ray's report about the job ---


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
        message = (
            f"Stopped{position_clause(view)}; the driver did not report whether it saved a"
            " checkpoint"
        )
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
    verb: str,
    view: RunView,
    reason: str = "",
    is_mirrored: bool = False,
) -> EndEvent:
    """Return the end of a run whose cluster is gone; `verb` is a verb such as "was deleted".

    `is_mirrored`: the journal here is what was read over the network until then.
    """
    details = f". {reason}" if reason else ""
    if is_mirrored:
        details = (
            f"{details.rstrip('.')}. The part of its journal that was read before is kept here"
        )
    return EndEvent(
        state="FAILED",
        message=f"The cluster {cluster!r} {verb} while the run was {position_text(view)}{details}",
        remedy=f"`llmops up`, then {_checkpoint(view)}".replace("{run}", run_id),
        last_step=view.last_step,
        is_lost=verb in ("died", "was restarted"),  # Else somebody has ended it.
    )


def _failure(job: Job, *, view: RunView) -> tuple[str, str]:
    text = job.message or ""
    if job.error_type == "RUNTIME_ENV_SETUP_FAILURE":
        return _environment(text)
    if job.error_type in _TEXTS:
        message, remedy = _TEXTS[job.error_type]
        return message.format(where=position_clause(view), reason=reason(text)), remedy
    code = job.driver_exit_code
    if code is None:
        return f"Ray ended the run{position_clause(view)}: {reason(text)}", _RESUME
    if killed := _signal(code):
        probable_cause = (
            ", probably because its node ran out of memory" if killed == "SIGKILL" else ""
        )
        return (
            f"The driver was killed ({killed}){position_clause(view)}{probable_cause}",
            f"`llmops status` shows the memory that is left; {_checkpoint(view)}",
        )
    return (
        f"The driver ended with exit code {code}{position_clause(view)}: {reason(text)}",
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


def position_text(view: RunView) -> str:
    """Return "at step 12", "in phase data" or "starting"."""
    if view.last_step is not None:
        return f"at step {view.last_step}"
    spans = [span for span in view.phases() if span.name != STOP_PHASE]
    open_phases = [span.name for span in spans if span.end_s is None]
    return f"in phase {open_phases[-1]}" if open_phases else "starting"


def position_clause(view: RunView) -> str:
    """Return " while the run was at step 12", with the space in front."""
    return f" while the run was {position_text(view)}"


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
