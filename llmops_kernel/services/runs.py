"""A run: its state, its log, stop, retry and delete; works with and without its cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.sections import MOST_PROFILED
from llmops_kernel.errors import (
    ClusterError,
    ClusterNotFoundError,
    ConfigError,
    LLMOpsError,
    RunNotFoundError,
    RunStateError,
    StoreError,
    TrackerError,
)
from llmops_kernel.jobs.announce import Announcer
from llmops_kernel.jobs.control import retry_run, stop_run, tell_run
from llmops_kernel.jobs.follow import Follower, log_on_disk, log_over_http
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import TERMINAL, PhaseEvent, RunState
from llmops_kernel.metrics.profile import REQUEST_PHASE
from llmops_kernel.providers.capabilities import SupportsRunStatus
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, Progress
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.store.garbage import (
    DeletionPreview,
    Garbage,
    clear_killed_deletes,
    find,
    preview,
    remove,
)
from llmops_kernel.store.journal.score_view import ChatView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.log_text import LogText
from llmops_kernel.store.record import PROFILE_MESSAGE, Attempt, Priority, RunRecord
from llmops_kernel.trackers.forwarder import Forwarder, send_rest, sending
from llmops_kernel.trackers.tracker import BACKENDS, TrackedRun, facts_of

if TYPE_CHECKING:
    from llmops_kernel.services.queue import QueuedRun

_POLL_S = 0.2


def start_words(info: ClusterInfo) -> str:
    """Return how processes of jobs start on a cluster now, and why, as `llmops status` has it."""
    if not info.is_ready:
        why = f": {info.message}" if info.message else ""
        return f"cluster {info.name} is {info.state}{why}"
    if not info.warm:
        return ""
    cold = ""
    if info.warm != "warm" and info.warm_cold_starts:
        cold = f"{counted(info.warm_cold_starts, 'cold start')}, the last: {info.warm_cold_reason}"
    return "; ".join(filter(None, [f"fork server: {info.warm}", cold]))


class Run:
    """A run of a store. Asks the run's cluster only where it must."""

    def __init__(
        self, backend: Backend, run_id: str, *, provider: ClusterProvider | None = None
    ) -> None:
        self.id = run_id
        self._backend = backend
        self._store = backend.store
        self._provider = provider

    def report(self, to: Sequence[str] = (), *, progress: Progress | None = None) -> dict[str, int]:
        """Send trackers what they do not have of this run; return how many rows each has got.

        `to` are names such as `mlflow`; by default those of the config's `report_to`. Credentials
        come from this process's environment. Raises TrackerError where one cannot be reached,
        MissingDependencyError without its package.
        """
        names = to or tuple(self.record.config.get("report_to") or ())
        unknown = [name for name in names if name not in BACKENDS]
        if unknown or not names:
            raise TrackerError(
                f"There is no tracker {unknown[0]!r}" if unknown else "No tracker is named",
                remedy=f"name one or more: {', '.join(BACKENDS)}",
            )
        view, folder, record = self.view, self._store.folder(self.id), self.record
        tracked = TrackedRun(
            run_id=self.id,
            name=record.name,
            kind=record.kind,
            config=record.config,
            folder=folder.trackers,
            home=self._store.root,
            facts=facts_of(record, self.attempts[-1] if self.attempts else None),
            notes=self._store.notes(self.id),
        )
        with sending(tracked):
            return {
                name: send_rest(
                    Forwarder(
                        *(name, tracked, folder.journal),
                        emit=partial(append_as_observer, folder.journal, attempt=view.attempt),
                    ),
                    is_over=view.is_terminal,
                    progress=progress,
                )
                for name in dict.fromkeys(names)
            }

    # What is known

    @cached_property
    def record(self) -> RunRecord:
        """Return what was submitted, from where and by whom; it never changes."""
        return self._store.record(self.id)

    @property
    def attempts(self) -> list[Attempt]:
        return self._store.attempts(self.id)

    @cached_property
    def _source(self) -> Follower:
        """The follower from which this object reads the run's state."""
        return self.follower()

    @property
    def view(self) -> RunView:
        """Return what the journal shows so far: state, steps, evaluations, phases, figures."""
        self._source.poll()
        return self._source.view

    @property
    def state(self) -> RunState:
        view = self.view
        # Until a new attempt has reported anything, the view still shows the end of the last one.
        return "PENDING" if view.is_terminal and not self._source.is_over else view.state

    @property
    def has_ended(self) -> bool:
        """Return True once it succeeded, failed or was stopped."""
        return self.state in TERMINAL

    def require_ended(self) -> None:
        """Raise RunStateError while the run has not ended: it cannot be deleted."""
        with suppress(ClusterError):
            self._settle()
        if self.attempts and not self.has_ended:
            raise RunStateError(
                f"Run {self.id} is {self.state}; only a run that has ended can be deleted",
                remedy=f"stop it first (llmops stop {self.id}) and wait until it has ended",
            )

    def _settle(self) -> None:
        """Check with the cluster whether the run has ended unobserved, and save its log."""
        if (provider := self._find_provider()) is not None:
            Observer(self._store, self.id, provider=provider).check()

    def follower(self, *, max_cells: int | None = None) -> Follower:
        """Return a new source of events: two views must not take each other's events.

        It also notices when the driver or the cluster died without reporting it. With
        `max_cells` its view holds so many numbers, those that a screen can show.
        """
        provider = self._find_provider()
        if provider is None:
            return Follower(self._store, self.id, max_cells=max_cells)
        observer = Observer(
            self._store,
            self.id,
            provider=provider,
            on_info=lambda info: setattr(follower.view, "cluster_says", start_words(info)),
        )
        # Called in the follower's thread: it may take seconds, or fail now and work later.
        follower = Follower(
            self._store,
            self.id,
            connection=lambda: provider.connect(self._full_cluster_name()),
            on_silence=observer.nudge,
            max_cells=max_cells,
        )
        if isinstance(provider, SupportsRunStatus) and not self.record.hidden:
            follower.on_events = Announcer(provider, self.id, target=self._newest).nudge
        return follower

    def close(self) -> None:
        """Stop reading the journal, and the thread that fetches it from the cluster."""
        self._source.close()

    def ask_about_start(self) -> None:
        """Ask the cluster why the run has not begun yet; its view then says it."""
        view, provider = self.view, self._find_provider()
        if provider is None or self._source.is_over or view.rows:
            return
        with suppress(LLMOpsError):
            view.cluster_says = start_words(provider.get(self._full_cluster_name()))

    # Log

    def log(self, attempt: int | None = None) -> LogText:
        """Return the log of an attempt (default the newest), to be read in parts and searched.

        Raises RunNotFoundError for an unknown attempt, and a ClusterError when the run has not
        ended and its cluster does not answer.
        """
        attempts = self.attempts
        if not attempts and attempt is None:
            return LogText(b"")
        chosen = next((a for a in reversed(attempts) if attempt in (None, a.number)), None)
        if chosen is None:
            raise RunNotFoundError(
                f"Run {self.id} has no attempt {attempt}",
                remedy=f"use one of: {', '.join(str(a.number) for a in attempts)}",
            )
        on_disk = log_on_disk(self._store.folder(self.id), self.record, chosen)
        return on_disk if on_disk is not None else self._log_of_cluster(chosen)

    def _log_of_cluster(self, attempt: Attempt) -> LogText:
        try:
            with self._cluster(attempt.cluster).client() as client:
                return log_over_http(client, attempt)
        except ClusterError:
            if not self._source.is_over:
                raise
            return LogText(b"")

    # What can be done

    def stop(self) -> None:
        """Request a stop and return at once; the run saves a checkpoint first.

        Does nothing when the run has ended.
        """
        attempts = self.attempts
        if attempts and not self.has_ended:
            with self._cluster(attempts[-1].cluster).client() as client:
                stop_run(self._store, self.id, client=client)

    def retry(self) -> Self:
        """Start a new attempt of the same config and code, from the last checkpoint.

        Raises RunStateError while the run has not ended.
        """
        cluster = self._cluster(self.record.cluster)
        self._settle()
        info = cluster.ready_info()
        with cluster.client() as client:
            retry_run(self._store, self.id, cluster=info, client=client)
        return self

    def profile(self, steps: int) -> None:
        """Ask a run that makes steps to profile the next ones.

        Raises RunStateError for a run that has ended or makes no steps, ConfigError for a number
        of steps that is none.
        """
        if not 1 <= steps <= MOST_PROFILED:
            raise ConfigError(
                f"Cannot profile {steps} steps", remedy=f"profile 1 to {MOST_PROFILED} steps"
            )
        kind, view = kind_named(self.record.kind), self.view
        if not kind.is_profiled:
            raise RunStateError(
                f"Run {self.id} is a {kind.name} run, whose steps cannot be profiled",
                remedy=kind.instead_of_profile,
            )
        cluster = self._cluster(self.attempts[-1].cluster if self.attempts else self.record.cluster)
        info = cluster.ready_info()
        note = partial(
            append_as_observer, self._store.folder(self.id).journal, attempt=view.attempt
        )
        detail = f"the next {counted(steps, 'step')}"
        with cluster.client() as client:
            if not self.has_ended:
                note(PhaseEvent(name=REQUEST_PHASE, state="begin", detail=detail))
            try:
                tell_run(
                    self._store,
                    self.id,
                    PROFILE_MESSAGE,
                    {"steps": steps},
                    cluster=info,
                    client=client,
                )
            except LLMOpsError:
                note(PhaseEvent(name=REQUEST_PHASE, state="end", detail="not delivered"))
                raise

    def queue(
        self, *, priority: Priority | None = None, before: str | None = None
    ) -> list[QueuedRun]:
        """Change the run's priority, or put it before another one in its cluster's queue.

        `before=""` puts it before all. Returns the queue. Raises RunStateError for a run that is
        not in it.
        """
        from llmops_kernel.services.queue import change  # Most uses of a run do not need it.

        before = self._store.resolve(before) if before else before
        return change(
            self._cluster(self._full_cluster_name()), self.id, priority=priority, before=before
        )

    def end_stalled(self, *, timeout_s: float) -> None:
        """Stop a run whose workers make no step, and wait until it has ended.

        Raises RunStateError while its steps end, or if it has not ended after `timeout_s`.
        """
        view = self.view
        if self.has_ended:
            return
        if view.stall is None:
            raise RunStateError(
                f"Run {self.id} is not stalled: its last step is {view.last_step}",
                remedy=f"`llmops stop {self.id}` saves a checkpoint, and `llmops retry {self.id}`"
                " goes on from it",
            )
        self.stop()
        until_s = time.monotonic() + timeout_s
        while not self.has_ended:
            if time.monotonic() > until_s:
                raise RunStateError(
                    f"Run {self.id} has not ended {timeout_s:g} s after the stop",
                    remedy=f"`llmops logs {self.id}`; then `llmops retry {self.id}`",
                )
            time.sleep(_POLL_S)

    def deletion(self) -> DeletionPreview:
        """Return what `delete` would remove, and what it would keep."""
        return preview(self._store, self.id)

    def delete(self) -> None:
        """Remove the run's folder: record, journal, logs, checkpoints and outputs in it.

        The turns of its chats are removed with it. Raises RunStateError while the run has not
        ended.
        """
        self.require_ended()
        self.close()
        self._delete_chats()
        self._store.delete(self.id)
        clear_killed_deletes(self._store)

    def _delete_chats(self) -> None:
        """Remove the turns of chats with this run: no list shows them. One that runs is kept."""
        for turn in self._store.run_ids(hidden=True):
            with suppress(RunNotFoundError, RunStateError, StoreError):
                if not turn.startswith("chat-"):
                    continue  # Not read: there may be thousands of others.
                record = self._store.record(turn)
                is_chat = record.hidden and issubclass(kind_named(record.kind).view, ChatView)
                if not is_chat or record.config.get("run") != self.id:
                    continue
                if self._store.view(turn).is_terminal:
                    self._store.delete(turn)
                else:  # Its cluster may know of its end.
                    Run(self._backend, turn).delete()

    def _find_provider(self) -> ClusterProvider | None:
        """Return the provider of the run's cluster; None when this version has no such one."""
        if self._provider is None:
            self._provider = self._backend.provider_named(self.record.provider)
        return self._provider

    def _cluster(self, name: str) -> Cluster:
        """Return a cluster of the run's provider. Raises ClusterNotFoundError without one."""
        provider = self._find_provider()
        if provider is None:
            raise ClusterNotFoundError(
                f"Run {self.id} ran on a {self.record.provider!r} cluster, which this "
                "installation does not support",
                remedy="install the version of llmops-kernel that submitted it",
            )
        return Cluster(name, provider=provider, backend=self._backend)

    def _full_cluster_name(self) -> str:
        return self._newest()[0]

    def _newest(self) -> tuple[str, float]:
        """Return cluster and time of submission of the newest attempt."""
        attempts, record = self.attempts, self.record
        if not attempts:
            return record.cluster, record.created_s
        return attempts[-1].full_name, attempts[-1].submitted_s


def garbage(backend: Backend) -> list[Garbage]:
    """Return what killed processes have left in the home, and packages that no run needs.

    Raises StoreError.
    """
    return find(backend.store)


def remove_garbage(found: Garbage) -> bool:
    """Remove it; False if it is in use again, or gone. Raises StoreError."""
    return remove(found)
