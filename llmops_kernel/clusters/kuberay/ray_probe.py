"""Asks Ray itself, over the tunnel: whether it lives, what it has and what runs on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from llmops_kernel.clusters.dashboard import Dashboard, Usage
from llmops_kernel.clusters.kuberay import status
from llmops_kernel.clusters.kuberay.finding import Found
from llmops_kernel.clusters.kuberay.fresh import Fresh
from llmops_kernel.clusters.provider import Connection
from llmops_kernel.errors import LLMOpsError

_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class RayAnswer:
    """What came back; `why` tells of silence."""

    lives: bool
    usage: Usage = field(default_factory=Usage)
    why: str = ""
    url: str | None = None


_answers: Fresh[RayAnswer] = Fresh(fresh_s=2.0, patience_s=1.0, stale_s=10.0)


def ask_ray(found: Found, *, until_s: float | None = None) -> RayAnswer | None:
    """None when no answer came in time, which says nothing about Ray."""
    return _answers.get(_key(found), lambda: _ask(found), until_s=until_s)


def is_known(found: Found) -> bool:
    """Whether it has answered before, or has been silent."""
    return _answers.known(_key(found))


def forget_ray(found: Found) -> None:
    """After a change that makes worthless what is known about its Ray."""
    _answers.forget(_key(found))


def connection_of(found: Found) -> Connection:
    """Raises KubeError, ClusterUnreachableError, MissingDependencyError."""
    from llmops_kernel.clusters.kuberay.tunnel import open_route

    return open_route(found.kube, found.raycluster, access=status.access_of(found.raycluster))


def jobs_of(found: Found) -> list[dict[str, Any]] | None:
    """All that Ray remembers; None when it does not answer."""
    try:
        with Dashboard(connection_of(found), timeout_s=_TIMEOUT_S) as dashboard:
            return dashboard.jobs()
    except LLMOpsError:
        return None


def _key(found: Found) -> tuple[int, str]:
    return id(found.kube), found.uid


def _shared(found: Found) -> Any:
    """Connections to the API server, which all its clusters have in common."""
    connection = connection_of(found)
    return (
        found.kube.transport() if connection.dashboard_url.startswith(found.kube.server) else None
    )


def _ask(found: Found) -> RayAnswer:
    try:
        connection = connection_of(found)
        with Dashboard(connection, timeout_s=_TIMEOUT_S, transport=_shared(found)) as dashboard:
            if dashboard.session_name() is None:
                return RayAnswer(False, why=f"Ray's API does not answer: {dashboard.trouble}")
            usage = dashboard.usage(ready_s=status.ready_since_s(found.raycluster))
    except LLMOpsError as error:
        return RayAnswer(False, why=error.message)
    return RayAnswer(True, usage=usage, url=connection.dashboard_url)
