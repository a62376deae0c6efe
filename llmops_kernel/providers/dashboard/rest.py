"""Reads a head's dashboard over REST, without `import ray`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.dashboard.demand import demand_reasons
from llmops_kernel.providers.dashboard.engines import (
    ENGINE_ACTORS,
    engine_actors,
    engine_info,
    note_path,
)
from llmops_kernel.providers.dashboard.jobs import described_active, is_active
from llmops_kernel.providers.protocol import EngineInfo, Waiting

if TYPE_CHECKING:
    from llmops_kernel.providers.protocol import Connection

_NOTES_S = 1.0


@dataclass(frozen=True)
class Usage:
    """Totals over all nodes; None is unknown."""

    num_nodes: int | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    cpus_used: float | None = None
    gpus_used: float | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    jobs_running: int | None = None
    jobs_total: int | None = None
    running: tuple[str, ...] | None = None
    idle_s: float | None = None
    engines: tuple[EngineInfo, ...] | None = None
    waiting: tuple[Waiting, ...] = ()
    """What waits for resources because none are free."""

    def figures(self) -> dict[str, Any]:
        """Return the fields that ClusterInfo has too, except `waiting`: its reasons differ."""
        reported = {item.name: getattr(self, item.name) for item in fields(self)}
        del reported["waiting"]
        return reported


class Dashboard:
    """A short-lived client; every answer that does not come in time is None."""

    def __init__(
        self, connection: Connection, *, timeout_s: float = 2.0, transport: Any = None
    ) -> None:
        """`transport` is httpx's, shared by many clusters at one address; default: its own."""
        from llmops_kernel.providers.dashboard.http import open_http

        more = {} if transport is None else {"transport": transport}
        self._http = open_http(connection, timeout=timeout_s, **more)
        self.trouble = ""
        """Why the last request was not answered."""
        self.error: ClusterError | None = None
        """What the route said about it, if it was the route."""

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def is_healthy(self) -> bool:
        """Return whether the agent of a node, if this is its address, and its raylet answer."""
        import httpx

        try:
            answer = self._http.get("/api/local_raylet_healthz")
        except httpx.HTTPError as error:
            self.trouble = str(error) or type(error).__name__
            return False
        self.trouble = "" if answer.is_success else f"HTTP {answer.status_code}"
        return answer.is_success

    def session_name(self) -> str | None:
        """Return the session of the Ray that accepts our token there."""
        answer = self._get("/api/version")
        return answer.get("session_name") if isinstance(answer, dict) else None

    def usage(self, *, ready_s: float | None = None) -> Usage:
        """Return the usage.

        `ready_s` is when the cluster was ready: before any job, idle time counts from there.
        """
        nodes = self._nodes()
        report = self._load()
        used = report.get("usage") if report else None
        jobs = self.jobs()
        memory = self._memory()
        return Usage(
            num_nodes=None if nodes is None else len(nodes),
            num_cpus=_total(nodes, "CPU"),
            num_gpus=_total(nodes, "GPU"),
            cpus_used=None if used is None else used.get("CPU", [0.0])[0],
            gpus_used=None if used is None else used.get("GPU", [0.0])[0],
            memory_bytes=None if memory is None else memory[0],
            memory_used_bytes=None if memory is None else memory[1],
            jobs_running=None if jobs is None else sum(is_active(job) for job in jobs),
            jobs_total=None if jobs is None else len(jobs),
            running=None if jobs is None else described_active(jobs),
            idle_s=None if jobs is None else idle_s(jobs, ready_s=ready_s, now_s=time.time()),
            # Asked last, and not of a dashboard that is silent: each question costs time then.
            engines=None if nodes is None or self.trouble else self.engines(),
            waiting=demand_reasons(report),
        )

    def engines(self) -> tuple[EngineInfo, ...] | None:
        """Return the models that are loaded; those whose notes take too long are only named."""
        rows = engine_actors(self._get(ENGINE_ACTORS))
        if rows is None:
            return None
        found, until_s = [], time.monotonic() + _NOTES_S
        for row in rows:
            note = self._get(note_path(row)) if time.monotonic() < until_s else None
            found.append(engine_info(row, note))
        return tuple(found)

    def _nodes(self) -> list[dict[str, Any]] | None:
        """Resources of each living node."""
        answer = self._get("/api/v0/nodes?detail=1")
        with suppress(KeyError, TypeError):
            rows = answer["data"]["result"]["result"]
            return [row["resources_total"] for row in rows if row["state"] == "ALIVE"]
        return None

    def _memory(self) -> tuple[int, int] | None:
        """Return (total, not available) of the hosts, as last reported by the nodes' agents."""
        answer = self._get("/nodes?view=summary")
        with suppress(KeyError, TypeError, IndexError, ValueError):
            # Total, available, percent, used; an agent that has not reported yet is not counted.
            rows = [node["mem"] for node in answer["data"]["summary"] if node.get("mem")]
            if rows:
                return sum(int(r[0]) for r in rows), sum(int(r[0]) - int(r[1]) for r in rows)
        return None

    def _load(self) -> dict[str, Any] | None:
        """Return `{"usage": {"CPU": [used, total]}, ...}`.

        None until the first report of the autoscaler, which starts late on a local cluster.
        """
        answer = self._get("/api/cluster_status")
        with suppress(KeyError, TypeError):
            report = answer["data"]["clusterStatus"]["loadMetricsReport"]
            return report if isinstance(report, dict) else None
        return None

    def jobs(self) -> list[dict[str, Any]] | None:
        """Return all jobs that Ray remembers, including drivers that were not submitted as jobs."""
        jobs = self._get("/api/jobs/")
        reported = isinstance(jobs, list) and all(isinstance(job, dict) for job in jobs)
        return jobs if reported else None

    def activities(self) -> dict[str, Any] | None:
        """Return what keeps the cluster from being idle, by component.

        Components are drivers, and what a hook on the cluster reports.
        """
        answer = self._get("/api/component_activities")
        return answer if isinstance(answer, dict) else None

    def _get(self, path: str) -> Any:
        import httpx

        self.error = None
        try:
            answer = self._http.get(path)
            self.trouble = "" if answer.is_success else f"HTTP {answer.status_code}"
            return answer.json() if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError, ClusterError) as error:
            # ClusterError: a route has no credentials, or lacks a right.
            self.error = error if isinstance(error, ClusterError) else None
            said = error.message if isinstance(error, ClusterError) else str(error)
            self.trouble = said or type(error).__name__
            return None


def idle_s(
    jobs: Sequence[Mapping[str, Any]], *, ready_s: float | None, now_s: float
) -> float | None:
    """Seconds without any job; None while one runs and when the beginning is not known."""
    if any(is_active(job) for job in jobs):
        return None
    ends_ms = [job.get("end_time") or job.get("start_time") or 0 for job in jobs]
    begins_s = [*(end_ms / 1000 for end_ms in ends_ms if end_ms), *filter(None, [ready_s])]
    return max(0.0, now_s - max(begins_s)) if begins_s else None


def _total(nodes: list[dict[str, Any]] | None, resource: str) -> float | None:
    return None if nodes is None else sum(float(node.get(resource, 0)) for node in nodes)
