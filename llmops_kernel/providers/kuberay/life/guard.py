"""Suspends and deletes idle clusters; guards share their state in the RayCluster."""

from __future__ import annotations

import getpass
import hashlib
import logging
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from llmops_kernel.errors import ClusterStateError, LLMOpsError
from llmops_kernel.providers.capabilities import Act, GuardState
from llmops_kernel.providers.dashboard import Dashboard
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.kuberay.api.paths import events_path
from llmops_kernel.providers.kuberay.life.lifecycle import delete, suspend_unchanged
from llmops_kernel.providers.kuberay.resource import names, own_clusters, status
from llmops_kernel.providers.kuberay.resource.objects import fields, labels, objects, one_line, text
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster, fetched
from llmops_kernel.providers.kuberay.state.idle_policy import (
    Activity,
    activity,
    decide,
    guard_input,
)
from llmops_kernel.providers.kuberay.state.info import pods_of_cluster
from llmops_kernel.providers.kuberay.state.ray_probe import connection_of

_ASK_S: Final = 10.0
_TRIES: Final = 3
_MAX_SKEW_S: Final = 60.0
_CLOCK_AGE_S: Final = 60.0
_NOTE_S: Final = 60.0
"""Idle times that differ by less are equal: several guards must not overwrite each other."""


@dataclass(frozen=True)
class GuardedRayCluster:
    """A RayCluster as idle guards see it."""

    located: LocatedCluster

    @property
    def name(self) -> str:
        return self.located.name

    def guard_state(self) -> GuardState | None:
        """Return what is due; None without an idle policy."""
        return guard_state_of(self.located)

    def record_idle(self, state: GuardState) -> None:
        """Record since when it is idle. Raises KubeError."""
        note(self.located, state)

    @property
    def keeps_journals(self) -> bool:
        """Return whether journals are in a folder that outlives the pods."""
        template = status.template_of(self.located.raycluster)
        runs = template.storage.runs if template is not None else None
        return runs is not None and "://" not in runs

    def require_clock(self) -> None:
        """Raise ClusterStateError if this machine's clock differs from the API server's."""
        require_clock(self.located)

    def record_decision(self, reason: str, message: str, *, refused: bool = False) -> None:
        """Create an event of the RayCluster. Raises nothing."""
        record(self.located, reason, message, refused=refused)

    def act(self, state: GuardState) -> bool:
        """Suspend or delete it if it is unchanged since it was seen. Raises KubeError."""
        return act(self.located, state)


def guard_state_of(located: LocatedCluster) -> GuardState | None:
    """Ask Ray what runs, and return what is due; None without a policy. Silence raises nothing."""
    cluster = guard_input(located.raycluster)
    if cluster is None:
        return None
    now = activity_of(located) if cluster.is_up else Activity(False)
    return decide(cluster, now, now_s=_now_s(located))


def _now_s(located: LocatedCluster) -> float:
    """Return the API server's time, asked again if the newest answer is old."""
    clock = located.kube.clock
    if clock.age_s > _CLOCK_AGE_S:
        with suppress(KubeError):
            located.kube.get(located.path)
    return clock.now_s()


def require_clock(located: LocatedCluster) -> None:
    """Raise ClusterStateError if this machine's clock differs from the API server's."""
    _now_s(located)
    ahead_s = located.kube.clock.ahead_s()
    if abs(ahead_s) <= _MAX_SKEW_S:
        return
    raise ClusterStateError(
        f"Idle guards of this machine do nothing: its clock is {abs(ahead_s):.0f} s"
        f" {'ahead of' if ahead_s > 0 else 'behind'} that of the API server of context"
        f" {located.scope.context}",
        remedy="set this machine's clock (`timedatectl` shows whether it is synchronized); it may"
        f" differ by {_MAX_SKEW_S:.0f} s",
    )


def activity_of(located: LocatedCluster) -> Activity:
    try:
        with Dashboard(connection_of(located), timeout_s=_ASK_S) as dashboard:
            jobs, activities = dashboard.jobs(), dashboard.activities()
    except LLMOpsError:
        return Activity(None)
    return activity(jobs, activities, ready_s=status.ready_since_s(located.raycluster))


def note(located: LocatedCluster, state: GuardState) -> None:
    """Record since when it is idle, for lists of clusters. Losing a race is not an error."""
    noted_s = status.seconds_of(located.raycluster, names.IDLE_SINCE)
    now = state.idle_since_s
    if noted_s == now or (noted_s and now and abs(noted_s - now) < _NOTE_S):
        return
    value = None if now is None else f"{now:.0f}"
    try:
        located.cache.put(
            located.kube.merge(located.path, _guarded(located, {names.IDLE_SINCE: value}))
        )
    except KubeError as error:
        if error.reason not in ("Conflict", "NotFound"):
            raise


def _guarded(located: LocatedCluster, annotations: dict[str, str | None]) -> dict[str, object]:
    """Limit the patch to the object as it was seen: it may have been kept or changed meanwhile."""
    meta = located.raycluster["metadata"]
    return {
        "metadata": {
            "annotations": annotations,
            "uid": meta.get("uid"),
            "resourceVersion": meta.get("resourceVersion"),
        }
    }


def act(located: LocatedCluster, state: GuardState) -> bool:
    """Check again, then suspend or delete that very object as it was seen.

    Returns False if it has changed: another guard was faster, or a user kept it or works on it.
    """
    for _ in range(_TRIES):
        current = fetched(located.scope, located.own_name, label=located.name, home=located.home)
        if current is None or current.uid != located.uid:
            return False
        newest = guard_state_of(current)
        if newest is None or newest.act is not state.act:
            return False
        require_clock(current)
        verb = "Deleting" if newest.act is Act.DELETE else "Suspending"
        record(current, f"IdleGuard{verb}", f"{verb} the cluster: {newest.why}")
        if _carry_out(current, state.act):
            return True
    return False


def _carry_out(located: LocatedCluster, action: Act) -> bool:
    """Return False if it was changed at the last moment, for example kept."""
    try:
        if action is Act.DELETE:
            delete(located, is_unchanged=True)
            own_clusters.forget(located.home, located.raycluster, context=located.scope.context)
        else:
            suspend_unchanged(located)
    except KubeError as error:
        if error.reason == "Conflict":
            return False
        raise
    return True


def head_is_gone(located: LocatedCluster) -> bool:
    """Return whether no container of Ray's head runs, so that what was in its pod is lost."""
    pods = pods_of_cluster(located)
    if pods is None:
        return False
    heads = [
        pod
        for pod in pods
        if labels(pod, "metadata", "labels").get(names.RAY_NODE_TYPE_LABEL) == "head"
    ]
    return not any(_runs(pod) for pod in heads)


def _runs(pod: object) -> bool:
    if text(pod, "status", "phase") in ("Failed", "Succeeded"):
        return False
    statuses = objects(pod, "status", "containerStatuses")
    if not statuses:
        return text(pod, "status", "phase") == "Running"
    return bool(fields(statuses[0], "state", "running"))


# --- Events of the RayCluster for an idle guard's decisions ---


COMPONENT: Final = "llmops-guard"
_LONGEST: Final = 1000
"""Kubernetes accepts messages of 1024 characters."""
_LOG = logging.getLogger(__name__)


def who() -> str:
    """Return `user@host` of this process, for people: it proves nothing."""
    user = "unknown"
    with suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def record(located: LocatedCluster, reason: str, message: str, *, refused: bool = False) -> None:
    """Create an event; the same decision about the same version makes one. Raises nothing."""
    try:
        located.kube.create(
            events_path(located.scope.namespace), _event(located, reason, message, refused=refused)
        )
    except LLMOpsError as error:
        # A right to make events may be missing: that neither stops nor hides a decision.
        if not (isinstance(error, KubeError) and error.reason == "AlreadyExists"):
            _LOG.warning("llmops guard: no event for %r: %s", message, error.message)


def _event(located: LocatedCluster, reason: str, message: str, *, refused: bool) -> dict[str, Any]:
    meta = located.raycluster["metadata"]
    by = who()
    identity = (
        located.uid,
        str(meta.get("generation")),
        reason,
        re.sub(r"[0-9.]+", "", message),
        by,
    )
    key = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]
    now = datetime.fromtimestamp(located.kube.clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{located.own_name}.{key}",
            "namespace": located.scope.namespace,
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": located.own_name,
            "namespace": located.scope.namespace,
            "uid": located.uid,
        },
        "reason": reason,
        "message": one_line(f"{message} (idle guard of {by})", limit=_LONGEST),
        "type": "Warning" if refused else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": by[:120],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
