"""The idle guard: archives the runs of idle clusters, then suspends or deletes them."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.history import archive_runs, require_no_other_runs
from llmops_kernel.jobs.observer import append_as_observer
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.providers import registry
from llmops_kernel.providers.capabilities import (
    Act,
    GuardedCluster,
    GuardState,
    SupportsGuard,
    guard_of,
)
from llmops_kernel.providers.protocol import ClusterProvider
from llmops_kernel.providers.registry import Providers
from llmops_kernel.store.journal.view import STOP_PHASE
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import list_runs

PERIOD_S: Final = 30.0
_STOP_WHY: Final = "the cluster's time to live has expired"
_NO_POLICY: Final = "it has no policy (`idle` in its template): guards ignore it"
_ENDS: Final = frozenset({"suspended", "deleted"})
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """Observations and actions of a guard."""

    cluster: str
    state: GuardState
    did: str = ""
    """`suspended`, `deleted`, `asked 2 jobs to stop`; empty when nothing was to be done."""
    trouble: str = ""
    """Why it could not be done."""

    @property
    def is_last(self) -> bool:
        """Return whether nothing is left to guard."""
        return self.did in _ENDS or self.state.why == _NO_POLICY


def guard_once(
    provider: ClusterProvider, name: str, *, store: RunStore | None = None, force: bool = False
) -> Report:
    """Check one cluster, and suspend or delete it when that is due.

    Several guards may run at once.

    Raises ClusterNotFoundError, ClusterStateError. What keeps it from acting is in the report.
    """
    cluster = guard_of(provider).guarded_cluster(name)
    return _guard(provider, cluster, store or RunStore(), force=force)


def _guard(
    provider: ClusterProvider, cluster: GuardedCluster, store: RunStore, *, force: bool
) -> Report:
    state = cluster.guard_state()
    if state is None:
        return Report(cluster.name, GuardState(why=_NO_POLICY))
    try:
        cluster.require_clock()
        cluster.record_idle(state)
        return Report(
            cluster.name, state, did=_apply_decision(provider, cluster, state, store, force=force)
        )
    except LLMOpsError as error:
        if state.act is not Act.NONE:
            cluster.record_decision("IdleGuardRefused", error.message, refused=True)
        return Report(cluster.name, state, trouble=f"{error.message}. Try: {error.remedy}")


def _apply_decision(
    provider: ClusterProvider,
    cluster: GuardedCluster,
    state: GuardState,
    store: RunStore,
    *,
    force: bool,
) -> str:
    if state.act is Act.NONE:
        return ""
    if state.act is Act.DRAIN:
        if action := _drain(provider, cluster.name, store):
            cluster.record_decision("IdleGuardStopping", f"{action}: {state.why}")
        return action
    archive_runs(provider, cluster.name, store=store, force=force)
    if not (force or cluster.keeps_journals):
        require_no_other_runs(provider, cluster.name, store=store)
    if not cluster.act(state):
        return ""
    return "deleted" if state.act is Act.DELETE else "suspended"


def _drain(provider: ClusterProvider, name: str, store: RunStore) -> str:
    """Ask each running job once to stop; a run saves a checkpoint first."""
    num_stopped = 0
    with JobsClient(provider.connect(name), cluster=name) as client:
        run_ids = {
            attempt.submission_id: summary.run_id
            for summary in list_runs(store, cluster=name, hidden=True)
            for attempt in store.attempts(summary.run_id)
        }
        for job in client.list():
            if job.is_terminal or job.submission_id is None:
                continue
            num_stopped += _stop(store, client, job.submission_id, run_ids.get(job.submission_id))
    return (
        f"asked {num_stopped} job{'' if num_stopped == 1 else 's'} to stop" if num_stopped else ""
    )


def _stop(store: RunStore, client: JobsClient, submission_id: str, run_id: str | None) -> bool:
    if run_id is None:
        return client.stop(submission_id)
    view = store.view(run_id)
    if view.state == "STOPPING" or not client.stop(submission_id):
        return False
    event = PhaseEvent(name=STOP_PHASE, state="begin", detail=_STOP_WHY)
    append_as_observer(store.folder(run_id).journal, event, attempt=max(1, view.attempt))
    return True


class GuardThread:
    """Guards all clusters with a policy that this user made or watches, until it is stopped."""

    def __init__(
        self,
        *,
        store: RunStore | None = None,
        providers: Providers = registry.providers,
        period_s: float = PERIOD_S,
    ) -> None:
        """Guard clusters of `providers` that have a guard; `store` is by default the user's."""
        self._store = store or RunStore()
        self._providers = providers
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmops-guard", daemon=True)
        self._logged: dict[str, str] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float = 2.0) -> None:
        """Wait until the thread has ended, at most `timeout_s`."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.wait(self._wait_s()):
            self._round()

    def _round(self) -> None:
        self._next_s = time.time() + self._period_s
        for provider in self._providers():
            # Whoever has never made a cluster pays nothing.
            if not isinstance(provider, SupportsGuard) or not provider.is_used:
                continue
            try:
                clusters = provider.guarded()
            except LLMOpsError as error:
                self._log("", error.message)
                continue
            for cluster in clusters:
                if self._ended.is_set():
                    return
                self._guarded_cluster(provider, cluster)

    def _guarded_cluster(self, provider: ClusterProvider, cluster: GuardedCluster) -> None:
        try:
            report = _guard(provider, cluster, self._store, force=False)
        except LLMOpsError as error:
            self._log(cluster.name, error.message)
            return
        self._log(
            cluster.name, report.trouble or (report.did and f"{report.did}: {report.state.why}")
        )
        if report.state.next_s is not None:
            self._next_s = min(self._next_s, report.state.next_s + 1.0)

    _next_s = 0.0

    def _wait_s(self) -> float:
        """Return the time until something is due, at most one period."""
        return min(self._period_s, max(1.0, self._next_s - time.time()))

    def _log(self, name: str, line: str) -> None:
        """Log a line once in the server's log."""
        if line and self._logged.get(name) != line:
            _LOG.warning("llmops guard: %s%s", f"cluster {name}: " if name else "", line)
        self._logged[name] = line
