"""The idle guard at work: looks at clusters with a policy, saves their history, then acts."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from llmops_kernel.clusters.kuberay.guard import Act, GuardState
from llmops_kernel.clusters.kuberay.provider import KubeRayProvider
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.aside import add_aside
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.history import bring_home
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.view import STOP_PHASE

if TYPE_CHECKING:
    from llmops_kernel.clusters.kuberay.finding import Found

PERIOD_S: Final = 30.0
_STOP_WHY: Final = "the cluster's time to live is over"
_NO_POLICY: Final = "it has no policy (`idle` in its template): no guard touches it"
_ENDS: Final = frozenset({"suspended", "deleted"})
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """What a guard found and did."""

    cluster: str
    state: GuardState
    did: str = ""
    """`suspended`, `deleted`, `asked 2 jobs to stop`; empty when nothing was to be done."""
    trouble: str = ""
    """Why it could not be done."""

    @property
    def is_last(self) -> bool:
        """There is nothing more to guard."""
        return self.did in _ENDS or self.state.why == _NO_POLICY


def guard_once(
    provider: KubeRayProvider, name: str, *, store: RunStore | None = None, force: bool = False
) -> Report:
    """One look at a cluster and, when it is time, the act. Any number of guards do no harm.

    Raises ClusterNotFoundError, KubeError. What keeps it from acting is in the report.
    """
    return _guard(provider, provider.find(name), store or RunStore(), force=force)


def _guard(provider: KubeRayProvider, found: Found, store: RunStore, *, force: bool) -> Report:
    from llmops_kernel.clusters.kuberay import guarding

    state = guarding.look(found)
    if state is None:
        return Report(found.name, GuardState(why=_NO_POLICY))
    try:
        guarding.note(found, state)
        return Report(found.name, state, did=_act(provider, found, state, store, force=force))
    except LLMOpsError as error:
        return Report(found.name, state, trouble=f"{error.message}. Try: {error.remedy}")


def _act(
    provider: KubeRayProvider, found: Found, state: GuardState, store: RunStore, *, force: bool
) -> str:
    from llmops_kernel.clusters.kuberay import guarding

    if state.act is Act.NONE:
        return ""
    if state.act is Act.DRAIN:
        return _drain(provider, found.name, store)
    bring_home(provider, found.name, store=store, force=force)
    if not guarding.act(found, state):
        return ""
    return "deleted" if state.act is Act.DELETE else "suspended"


def _drain(provider: KubeRayProvider, name: str, store: RunStore) -> str:
    """Asks each running job once; a run saves a checkpoint first."""
    asked = 0
    with JobsClient(provider.connect(name), cluster=name) as client:
        ours = {
            attempt.submission_id: summary.run_id
            for summary in store.list(cluster=name)
            for attempt in store.attempts(summary.run_id)
        }
        for job in client.list():
            if job.is_terminal or job.submission_id is None:
                continue
            asked += _stop(store, client, job.submission_id, ours.get(job.submission_id))
    return f"asked {asked} job{'' if asked == 1 else 's'} to stop" if asked else ""


def _stop(store: RunStore, client: JobsClient, submission_id: str, run_id: str | None) -> bool:
    if run_id is None:
        return client.stop(submission_id)
    view = store.view(run_id)
    if view.state == "STOPPING" or not client.stop(submission_id):
        return False
    event = PhaseEvent(name=STOP_PHASE, state="begin", detail=_STOP_WHY)
    add_aside(store.folder(run_id).journal, event, attempt=max(1, view.attempt))
    return True


class GuardThread:
    """Guards all clusters with a policy that this user can see, until it is stopped."""

    def __init__(
        self, *, provider: KubeRayProvider | None = None, period_s: float = PERIOD_S
    ) -> None:
        self._provider = provider or KubeRayProvider()
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmops-guard", daemon=True)
        self._told: dict[str, str] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_s: float = 2.0) -> None:
        """Returns when it has ended, or when a look that is under way takes longer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.wait(self._wait_s()):
            self._round()

    def _round(self) -> None:
        self._next_s = time.time() + self._period_s
        try:
            # Whoever has never made a cluster pays nothing.
            clusters = self._provider.guarded() if self._provider.is_used else ()
        except LLMOpsError as error:
            self._tell("", error.message)
            return
        store = RunStore()
        for found in clusters:
            if self._ended.is_set():
                return
            self._one(found, store)

    def _one(self, found: Found, store: RunStore) -> None:
        try:
            report = _guard(self._provider, found, store, force=False)
        except LLMOpsError as error:
            self._tell(found.name, error.message)
            return
        self._tell(
            found.name, report.trouble or (report.did and f"{report.did}: {report.state.why}")
        )
        if report.state.next_s is not None:
            self._next_s = min(self._next_s, report.state.next_s + 1.0)

    _next_s = 0.0

    def _wait_s(self) -> float:
        """Until something is due, and at most one period."""
        return min(self._period_s, max(1.0, self._next_s - time.time()))

    def _tell(self, name: str, line: str) -> None:
        """Each thing once in the server's log."""
        if line and self._told.get(name) != line:
            _LOG.warning("llmops guard: %s%s", f"cluster {name}: " if name else "", line)
        self._told[name] = line
