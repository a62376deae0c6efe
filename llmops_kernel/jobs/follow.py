"""Follows a run: returns each event of its journal once, wherever the run writes it."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import MAX_LOG_LINES, JobsClient
from llmops_kernel.jobs.mirror import MIN_PERIOD_S, JournalMirror
from llmops_kernel.kinds.registry import new_view
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.providers.protocol import Connection, JobLogs
from llmops_kernel.providers.registry import provider_named, shares_disk
from llmops_kernel.store.journal.journal import FolderTail, merge
from llmops_kernel.store.journal.view import RunView, read_thinned
from llmops_kernel.store.log_text import LogText
from llmops_kernel.store.outputs import to_copy
from llmops_kernel.store.paths import RunFolder, home
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore

MAX_RECONNECT_S = 5.0
DRAIN_S = 10.0
COPY_S = 50.0
LAST_LINES_S = 300.0
"""How long to ask for the last lines of a run that has ended, if its cluster does not answer."""
SILENCE_S = 3.0


class Follower:
    """Reads a run's journal. Thread-safe; works without a cluster.

    Where the cluster does not share the disk, a thread fetches the journal from the dashboard and
    reconnects when the connection is lost.
    """

    _is_mirrored = False
    """Whether a thread has read the dashboard already."""

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        *,
        connection: Connection | Callable[[], Connection] | None = None,
        remote: bool | None = None,
        on_silence: Callable[[], None] = lambda: None,
        silence_s: float = SILENCE_S,
        max_cells: int | None = None,
    ) -> None:
        """Follow a run; `connection` may be a function: it is called in a thread, again on failure.

        `remote` says whether to read from the dashboard; the default is yes if the disk is not
        shared. `on_silence` is called by `poll` when a running run has written nothing for
        `silence_s`, and once when it has ended; it must return at once. With `max_cells` the
        view holds so many numbers, and of many events `poll` returns the last part.
        """
        self.run_id = store.resolve(run_id)
        record = store.record(self.run_id)
        self.view: RunView = new_view(record.kind)
        self._store = store
        self._tail = FolderTail(store.folder(self.run_id).journal)
        self._max_cells = max_cells
        self._lock = threading.Lock()
        self._arrived: list[AnyEvent] = []
        self._closed = threading.Event()
        if remote is None:
            remote = not shares_disk(record.provider)
        self._connection = connection if remote else None
        self._on_silence = on_silence
        self.on_events: Callable[[RunView], None] = lambda _: None
        """Called by each `poll` that has new events; must return at once."""
        self._silence_s = silence_s
        self._last_event_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self.is_over = False
        """Whether the newest attempt had ended at the last `poll`."""

    def poll(self) -> list[AnyEvent]:
        """Return new events by time and apply them to `view`. Never waits for the network."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
            events = self._read(arrived)
            was_over = self.is_over
            if events or not was_over:
                self.is_over = self._find_over()
            self._keep_mirroring()
        if events:
            self.on_events(self.view)
        if self._is_silent(has_events=bool(events)) or (self.is_over and not was_over):
            self._on_silence()
        return events

    def thin(self, *, max_cells: int) -> None:
        """Hold fewer rows from now on."""
        with self._lock:
            self.view.thin(max_cells=max_cells)

    def _read(self, arrived: list[AnyEvent]) -> list[AnyEvent]:
        if self._max_cells is None:
            return self.view.apply(merge([arrived, self._tail.read()]))
        return read_thinned(self._tail, self.view, max_cells=self._max_cells, arrived=arrived)

    def _is_silent(self, *, has_events: bool) -> bool:
        now_s = time.monotonic()
        if has_events:
            self._last_event_s = now_s
        return not self.is_over and now_s - self._last_event_s > self._silence_s

    def _find_over(self) -> bool:
        if not self.view.is_terminal:
            return False
        attempts = self._store.attempts(self.run_id)
        return not attempts or attempts[-1].number <= self.view.attempt

    def _keep_mirroring(self) -> None:
        """Start the thread if it is needed: while the run runs, and again after a retry.

        Of a run that had ended before it goes on with outputs that were not copied in full.
        """
        if self._connection is None or self._closed.is_set():
            return
        if self.is_over and (self._is_mirrored or not to_copy(self.view.outputs)):
            return
        self._is_mirrored = True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run_mirror,
                args=(self._connection,),
                name=f"llmops-mirror-{self.run_id}",
                daemon=True,
            )
            self._thread.start()

    def _run_mirror(self, connection: Connection | Callable[[], Connection]) -> None:
        journal = self._store.folder(self.run_id).journal
        mirror = JournalMirror(connection, run_id=self.run_id, journal=journal)
        wait_s, over_since_s = 0.0, None
        was_over = self.is_over
        with mirror:
            while not self._closed.wait(wait_s):
                # Events before the end must not be missed because they are read after it.
                is_over = self.is_over
                reached = self._sync(mirror, everything=is_over)
                if is_over and (reached or was_over):
                    return
                if is_over and over_since_s is None:
                    over_since_s = time.monotonic()
                if over_since_s and time.monotonic() - over_since_s > LAST_LINES_S:
                    return  # They were lost with the cluster.
                wait_s = MIN_PERIOD_S if reached else min(2 * wait_s + 0.1, MAX_RECONNECT_S)

    def _sync(self, mirror: JournalMirror, *, everything: bool = False) -> bool:
        try:
            events = mirror.sync(everything=everything)
        except (LLMOpsError, ValueError, RuntimeError):
            # Interrupted, a broken answer, or closed meanwhile: the next round tries again.
            return False
        with self._lock:
            self._arrived += events
        return True

    def drain(self) -> list[AnyEvent]:
        """Poll, after waiting a few seconds at most for events that the cluster still has.

        For its small outputs, which are copied then, it waits up to a minute.
        """
        if self._thread is not None and self.is_over:
            self._thread.join(DRAIN_S)
            if to_copy(self.view.outputs):
                self._thread.join(COPY_S)
        return self.poll()

    def follow(
        self, *, interval_s: float = 0.5, timeout_s: float | None = None
    ) -> Iterator[list[AnyEvent]]:
        """Yield batches of new events, also empty ones, until the run has ended or the timeout."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            events = self.poll()
            if self.is_over:
                yield events + self.drain()
                return
            yield events
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return
            time.sleep(interval_s)

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- Sources of logs ---
# Where an attempt's log is: in Ray's session folder, kept in the run folder, or on the cluster.


KEPT_LOG_BYTES = 64 * 1024**2
"""The run folder keeps only the end of a longer log, and says so in its first line."""
_COPY_BYTES = 1 << 20


def saved_log(folder: RunFolder, attempt: int) -> Path:
    return folder.logs / f"driver-{attempt}.log"


def log_on_disk(folder: RunFolder, record: RunRecord, attempt: Attempt) -> LogText | None:
    """Return the log if it is on this machine: complete while the session lives, then the copy."""
    cluster_logs = _logs_of_cluster(record, attempt)
    candidates = [cluster_logs.live, saved_log(folder, attempt.number), cluster_logs.kept]
    path = next((path for path in candidates if path is not None and path.is_file()), None)
    return None if path is None else LogText(path)


def live_log(record: RunRecord, attempt: Attempt) -> Path | None:
    """Return the file that Ray writes, if its session folder is on this machine."""
    path = _logs_of_cluster(record, attempt).live
    return path if path is not None and path.is_file() else None


def _logs_of_cluster(record: RunRecord, attempt: Attempt) -> JobLogs:
    if not shares_disk(record.provider):
        return JobLogs()
    provider = provider_named(record.provider, home=home())
    return provider.job_logs(attempt.cluster, attempt.submission_id)


def log_over_http(client: JobsClient, attempt: Attempt) -> LogText:
    """Return the cluster's last 50,000 lines; empty before the driver runs."""
    job = client.get(attempt.submission_id)
    text = client.driver_log(job, lines=MAX_LOG_LINES) if job is not None else ""
    return LogText(text.encode())


def keep_log(source: Path, target: Path, *, max_bytes: int = KEPT_LOG_BYTES) -> None:
    """Copy the last `max_bytes` of a log, in chunks. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with source.open("rb") as file, temporary.open("xb") as copy:
            _copy(file, copy, max_bytes)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(file: BinaryIO, copy: BinaryIO, max_bytes: int) -> None:
    size = file.seek(0, os.SEEK_END)
    left_out = max(0, size - max_bytes)
    file.seek(left_out)
    if left_out:
        left_out += len(file.readline())  # Begin with a whole line.
        copy.write(f"[llmops] the first {left_out:,} bytes of this log were not kept\n".encode())
    num_left = size - left_out
    while num_left > 0 and (chunk := file.read(min(_COPY_BYTES, num_left))):
        copy.write(chunk)
        num_left -= len(chunk)
