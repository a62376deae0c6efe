"""Tells the truth about a run that can no longer tell it: its driver or its cluster died."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from llmops_kernel.clusters.provider import ClusterProvider, ClusterState
from llmops_kernel.errors import ClusterError, ClusterNotFoundError, LLMOpsError, StoreError
from llmops_kernel.jobs.aside import add_aside
from llmops_kernel.jobs.client import MAX_LOG_LINES, Job, JobsClient
from llmops_kernel.jobs.follow import SHARED_PROVIDERS, Follower
from llmops_kernel.jobs.log_source import keep_log, live_log, saved_log
from llmops_kernel.jobs.reasons import end_of_job, end_without_cluster
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.runs.files import write_whole
from llmops_kernel.runs.record import Attempt
from llmops_kernel.runs.store import RunStore

GRACE_S = 2.0
"""How long the last lines of a journal may still be on their way after the job has ended."""
SUBMIT_LIMIT_S = 900.0
"""A client that has not handed its run to Ray by then has died."""
CHECK_PERIOD_S = 5.0
DRIVER_EXIT_S = 5.0
"""A driver that has told its end still writes a few lines of log."""


class Observer:
    """Compares a run's journal with what its cluster says. Any number may watch one run."""

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        *,
        provider: ClusterProvider,
        grace_s: float = GRACE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._run_id = store.resolve(run_id)
        self._provider = provider
        self._grace_s = grace_s
        self._clock = clock
        self._follower = Follower(store, self._run_id, remote=False)
        self._lock = threading.Lock()
        self._due_s = 0.0

    def nudge(self) -> None:
        """Check in the background if it is time to; returns at once."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + CHECK_PERIOD_S
        name = f"llmops-observer-{self._run_id}"
        threading.Thread(target=self._check_quietly, name=name, daemon=True).start()

    def _check_quietly(self) -> None:
        with suppress(LLMOpsError):  # A view must not end because a check could not be made.
            self.check()

    def check(self) -> EndEvent | None:
        """How the newest attempt ended; None while it runs or while that cannot be known.

        Journals the end, once, when the run itself did not.
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
        # The lines read meanwhile may tell of later steps.
        event = self._judge(attempt)
        return event and self._journal(event, attempt=attempt.number)

    def _ended(self, attempt: int) -> bool:
        self._follower.poll()
        view = self._follower.view
        return view.attempt >= attempt and view.is_terminal

    def _wait_for_last_lines(self, attempt: int) -> None:
        """Until the end arrives, or nothing has for the length of the grace."""
        quiet_until_s = time.monotonic() + self._grace_s
        while time.monotonic() < quiet_until_s:
            if self._follower.poll():
                quiet_until_s = time.monotonic() + self._grace_s
            if self._ended(attempt):
                return
            time.sleep(0.1)

    def _journal(self, event: EndEvent, *, attempt: int) -> EndEvent | None:
        journal = self._store.folder(self._run_id).journal
        add_aside(journal, event, attempt=attempt, unless=lambda: self._ended(attempt))
        return self._follower.view.end if self._ended(attempt) else None

    def _judge(self, attempt: Attempt) -> EndEvent | None:
        view = self._follower.view
        try:
            info = self._provider.get(attempt.full_name)
        except ClusterNotFoundError:
            return self._gone(attempt, what="is not there any more")
        if info.state in (ClusterState.DEAD, ClusterState.STOPPED):
            if self._still_runs(attempt):
                return None
            went = "was stopped" if info.state == ClusterState.STOPPED else "went away"
            return self._gone(attempt, what=went, why=info.message)
        if info.state != ClusterState.READY:
            return None
        with self._client(attempt) as client:
            job = client.get(attempt.submission_id)
            if job is None:
                return self._unknown_job(attempt)
            if not job.is_terminal:
                return None
            self._keep_log(client, job, attempt=attempt)
        return end_of_job(job, view=view)

    def _still_runs(self, attempt: Attempt) -> bool:
        """The head of a cluster without workers may be kept, and knows more than its state."""
        if self._is_shared():
            return False
        with suppress(ClusterError), self._client(attempt) as client:
            job = client.get(attempt.submission_id)
            return job is not None and not job.is_terminal
        return False

    def _is_shared(self) -> bool:
        return self._store.record(self._run_id).provider in SHARED_PROVIDERS

    def _gone(self, attempt: Attempt, *, what: str, why: str = "") -> EndEvent | None:
        is_shared = self._is_shared()
        if is_shared and self._store.record(self._run_id).host != socket.gethostname():
            return None  # Another machine's local cluster cannot be judged from here.
        return end_without_cluster(
            attempt.cluster,
            what=what,
            view=self._follower.view,
            why=why,
            is_mirrored=not is_shared,
        )

    def _unknown_job(self, attempt: Attempt) -> EndEvent | None:
        view = self._follower.view
        phases = {span.name: span.end_s for span in view.phases(attempt.number)}
        handed_over = phases.get("pending") is not None
        if not handed_over and self._clock() - attempt.submitted_s < SUBMIT_LIMIT_S:
            return None  # Its client may be uploading.
        if not handed_over:
            return _never(view.last_step)
        return self._gone(attempt, what="was restarted")

    def _never_handed_over(self) -> EndEvent | None:
        record = self._store.record(self._run_id)
        if self._clock() - record.created_s < SUBMIT_LIMIT_S:
            return None
        return self._journal(_never(None), attempt=1)

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


def reconcile(store: RunStore, run_id: str, *, provider: ClusterProvider) -> EndEvent | None:
    """How the newest attempt ended; journals it when the run itself could not.

    None while it runs, or while the cluster cannot be asked.
    """
    return Observer(store, run_id, provider=provider).check()


def _never(last_step: int | None) -> EndEvent:
    return EndEvent(
        state="FAILED",
        message="The client ended before it had handed the run to Ray",
        remedy="`run.retry()`",
        last_step=last_step,
    )
