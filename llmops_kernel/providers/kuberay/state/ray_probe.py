"""Asks Ray itself, through the tunnel: whether it is alive, what it has and what runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.dashboard import Dashboard, Usage
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.api.refreshing_cache import RefreshingCache
from llmops_kernel.providers.kuberay.resource import status
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster
from llmops_kernel.providers.protocol import Connection, Waiting

_TIMEOUT_S: Final = 2.0
_PATIENCE_S: Final = 1.0
_TRIPS: Final = 30
"""Round trips to a far API server until a first answer, with handshakes; more than are needed."""
_REQUEST_TRIPS: Final = 4


@dataclass(frozen=True)
class RayAnswer:
    """Ray's answer; `reason` explains a missing one."""

    lives: bool
    usage: Usage = field(default_factory=Usage)
    reason: str = ""
    url: str | None = None
    denied: Waiting | None = None
    """The missing right or credential, if that is the reason."""


_answers: RefreshingCache[RayAnswer] = RefreshingCache(
    refresh_after_s=2.0, patience_s=_PATIENCE_S, stale_s=10.0
)


def ask_ray(located: LocatedCluster, *, until_s: float | None = None) -> RayAnswer | None:
    """Return the answer; None if none came in time, which says nothing about Ray."""
    patience_s = _PATIENCE_S + _TRIPS * located.kube.round_trip.seconds
    return _answers.get(
        _key(located), lambda: _ask(located), until_s=until_s, patience_s=patience_s
    )


def is_known(located: LocatedCluster) -> bool:
    """Return whether Ray has answered before, or a request has failed."""
    return _answers.known(_key(located))


def invalidate_ray(located: LocatedCluster) -> None:
    """Forget what is known about its Ray, after a change that invalidates it."""
    _answers.forget(_key(located))


def connection_of(located: LocatedCluster) -> Connection:
    """Connect to it. Raises KubeError, ClusterUnreachableError, MissingDependencyError."""
    from llmops_kernel.providers.kuberay.route.tunnel import connection_to

    return connection_to(located.kube, located.raycluster, home=located.home)


def jobs_of(located: LocatedCluster) -> list[dict[str, Any]] | None:
    """Return all jobs that Ray remembers; None if it does not answer."""
    try:
        with Dashboard(connection_of(located), timeout_s=_timeout_s(located)) as dashboard:
            return dashboard.jobs()
    except LLMOpsError:
        return None


def _timeout_s(located: LocatedCluster) -> float:
    return _TIMEOUT_S + _REQUEST_TRIPS * located.kube.round_trip.seconds


def _key(located: LocatedCluster) -> tuple[int, str]:
    return located.kube.key, located.uid


def _shared(located: LocatedCluster) -> Any:
    """Return what all clusters of an API server share: the connections to it."""
    connection = connection_of(located)
    return (
        located.kube.transport()
        if connection.dashboard_url.startswith(located.kube.server)
        else None
    )


def _ask(located: LocatedCluster) -> RayAnswer:
    try:
        connection = connection_of(located)
        timeout_s = _timeout_s(located)
        with Dashboard(connection, timeout_s=timeout_s, transport=_shared(located)) as dashboard:
            if dashboard.session_name() is None:
                if isinstance(dashboard.error, KubeDenied):
                    return _denied(dashboard.error)
                trouble = f": {dashboard.trouble}" if dashboard.trouble else ""
                return RayAnswer(False, reason=f"Ray's API does not answer{trouble}")
            usage = dashboard.usage(ready_s=status.ready_since_s(located.raycluster))
    except KubeDenied as error:
        return _denied(error)
    except LLMOpsError as error:
        return RayAnswer(False, reason=error.message)
    return RayAnswer(True, usage=usage, url=connection.dashboard_url)


def _denied(error: KubeDenied) -> RayAnswer:
    """Return that Ray could not be asked, which says nothing about Ray."""
    reason = Waiting(message=error.message, remedy=error.remedy, kind="permission", is_stuck=True)
    return RayAnswer(False, reason=error.message, denied=reason)
