"""Writes the end of a run whose driver or cluster died before it could."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from llmops_kernel.errors import ClusterError, ClusterNotFoundError, LLMOpsError, StoreError
from llmops_kernel.jobs.client import MAX_LOG_LINES, Job, JobsClient
from llmops_kernel.jobs.follow import Follower, keep_log, live_log, saved_log
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.jobs.reasons import end_of_job, end_without_cluster
from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, ClusterState
from llmops_kernel.providers.registry import shares_disk
from llmops_kernel.store.files import write_whole
from llmops_kernel.store.journal.long_journal import FEW_CELLS
from llmops_kernel.store.record.record import Attempt
from llmops_kernel.store.record.submitting import was_abandoned
from llmops_kernel.store.store import RunStore

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
        """`on_info` hears what the cluster reports at each check, in the thread of the check."""
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
            return self._gone(attempt, what="no longer exists")
        self._on_info(info)
        if info.is_gone:
            went = "was stopped" if info.state == ClusterState.STOPPED else "died"
            return self._gone(attempt, what=went, why=info.message)
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

    def _gone(self, attempt: Attempt, *, what: str, why: str = "") -> EndEvent | None:
        is_shared = self._is_shared()
        if is_shared and self._store.record(self._run_id).host != socket.gethostname():
            return None  # Another machine's local cluster cannot be checked from here.
        return end_without_cluster(
            attempt.cluster,
            run_id=self._run_id,
            what=what,
            view=self._follower.view,
            why=why,
            is_mirrored=not is_shared,
        )

    def _unknown_job(self, attempt: Attempt) -> EndEvent | None:
        view = self._follower.view
        phases = {span.name: span for span in view.phases(attempt.number)}
        if "pending" not in phases or phases["pending"].end_s is None:
            begun_s = max([attempt.submitted_s, *(span.begin_s for span in phases.values())])
            # Its client may be uploading.
            return _never(self._run_id, view.last_step) if self._is_left(begun_s) else None
        return self._gone(attempt, what="was restarted")

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
