"""Reads a head's dashboard over HTTP, without `import ray`."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from pydantic import ValidationError

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.protocol import EngineInfo, Waiting
from llmops_kernel.store.engine_names import NAMESPACE, NOTES

if TYPE_CHECKING:
    import httpx

    from llmops_kernel.providers.protocol import Connection


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Ray refuses to change anything for a user agent that looks like a browser's.
USER_AGENT = "llmops-kernel"


def open_http(connection: Connection, **settings: Any) -> httpx.Client:
    """Open a client; paths such as `/api/version` are below the dashboard's address."""
    import httpx

    return httpx.Client(**_settings(connection), **settings)


def open_async_http(connection: Connection, **settings: Any) -> httpx.AsyncClient:
    """Return the same client for asyncio."""
    import httpx

    return httpx.AsyncClient(**_settings(connection), **settings)


def _settings(connection: Connection) -> dict[str, Any]:
    parts = urlsplit(connection.dashboard_url)
    is_tls = parts.scheme == "https"
    route = connection.route
    return {
        "base_url": connection.dashboard_url,
        "headers": {**connection.headers(), "User-Agent": USER_AGENT},
        "auth": route.auth() if route else None,
        # A proxy of the environment sees nothing of TLS, but all of plain HTTP, token included.
        "trust_env": is_tls and route is None and parts.hostname not in LOOPBACK,
        "proxy": route.proxy() if route and is_tls else None,
        "verify": _verify(connection) if is_tls else no_authorities(),
        # Credentials are sent only to the cluster, never to another address.
        "follow_redirects": False,
    }


def _verify(connection: Connection) -> Any:
    return connection.route.verify() if connection.route else True


@cache
def no_authorities() -> ssl.SSLContext:
    """Return a context without certificate authorities: loading them takes 0.1 s."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


# --- Reads a head's dashboard over REST, without `import ray` ---


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
        """Connect; `transport` is httpx's, shared by many clusters at one address."""
        options = {} if transport is None else {"transport": transport}
        self._http = open_http(connection, timeout=timeout_s, **options)
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
        infos, until_s = [], time.monotonic() + _NOTES_S
        for row in rows:
            note = self._get(note_path(row)) if time.monotonic() < until_s else None
            infos.append(engine_info(row, note))
        return tuple(infos)

    def _nodes(self) -> list[dict[str, Any]] | None:
        """Return resources of each living node."""
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
            message = error.message if isinstance(error, ClusterError) else str(error)
            self.trouble = message or type(error).__name__
            return None


def idle_s(
    jobs: Sequence[Mapping[str, Any]], *, ready_s: float | None, now_s: float
) -> float | None:
    """Return seconds without any job; None while one runs and when the beginning is not known."""
    if any(is_active(job) for job in jobs):
        return None
    ends_ms = [job.get("end_time") or job.get("start_time") or 0 for job in jobs]
    begins_s = [*(end_ms / 1000 for end_ms in ends_ms if end_ms), *filter(None, [ready_s])]
    return max(0.0, now_s - max(begins_s)) if begins_s else None


def _total(nodes: list[dict[str, Any]] | None, resource: str) -> float | None:
    return None if nodes is None else sum(float(node.get(resource, 0)) for node in nodes)


# --- Loaded models, from Ray's state API and the notes of engines ---


_FILTERS = (("state", "ALIVE"), ("ray_namespace", NAMESPACE))
ENGINE_ACTORS = "/api/v0/actors?" + urlencode(
    [
        pair
        for key, value in _FILTERS
        for pair in (("filter_keys", key), ("filter_predicates", "="), ("filter_values", value))
    ]
)
"""Only living actors: Ray remembers many thousands of others."""


def engine_actors(answer: Any) -> list[dict[str, Any]] | None:
    """Return the actors of the answer, sorted by name; None when Ray did not say."""
    try:
        rows = answer["data"]["result"]["result"]
        return sorted((row for row in rows if row["name"]), key=lambda row: str(row["name"]))
    except (KeyError, TypeError):
        return None


def note_path(row: Mapping[str, Any]) -> str:
    """Return the path of the engine's own note."""
    file = {"node_id": row.get("node_id") or "", "filename": f"{NOTES}/{row['name']}.json"}
    return "/api/v0/logs/file?" + urlencode({**file, "lines": -1})


def engine_info(row: Mapping[str, Any], note: Any) -> EngineInfo:
    """Return what is known; `note` is what the engine wrote, or anything else."""
    name = str(row["name"])
    index = name.rpartition("-")[2]
    values = {
        "name": name,
        "replica": int(index) if index.isdigit() else None,
        "node_id": str(row.get("node_id") or ""),
    }
    # The note of a process that was killed may still be there.
    if not isinstance(note, Mapping) or note.get("pid") != row.get("pid"):
        return EngineInfo.model_validate(values)
    idle_since_s, keep_s = note.get("idle_since_s"), note.get("keep_s")
    leaves_at_s = None if idle_since_s is None or keep_s is None else idle_since_s + keep_s
    try:
        return EngineInfo.model_validate({**note, **values, "leaves_at_s": leaves_at_s})
    except ValidationError:  # Of another version.
        return EngineInfo.model_validate(values)


# --- Ray's jobs in readable form ---


RUN_KEY: Final = "llmops_run"
"""Key in a job's metadata: the run that it is an attempt of."""
USER_KEY: Final = "llmops_user"
"""Who submitted it, as their machine calls them."""
_ENTRYPOINT_CHARS: Final = 60
_SHOWN: Final = 20
_ACTIVE: Final = frozenset({"PENDING", "RUNNING"})
_RUN_LINE: Final = re.compile(r"(run (\S+)(?: of .*)?) \(running\)")


def described_job(job: Mapping[str, Any]) -> str:
    """Return `run lora-1 (running)`, or the kind and entrypoint of a job that is no run."""
    state = str(job.get("status", "")).lower()
    metadata = job.get("metadata") or {}
    if run_id := metadata.get(RUN_KEY):
        user = one_line(str(metadata.get(USER_KEY) or ""))
        return f"run {run_id}{f' of {user}' if user else ''} ({state})"
    if job.get("type") == "DRIVER":
        return f"job {job.get('job_id')} ({state}): a notebook or script that is connected to it"
    entrypoint = one_line(str(job.get("entrypoint") or ""))
    return f"job {job.get('submission_id')} ({state}): {entrypoint}"


def with_run_states(lines: Sequence[str], state_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return lines of `described_job` with the state that each run has itself.

    To Ray a job is running whose run waits in the queue. `state_of` gets a run's id and returns
    None where that is not known.
    """
    return tuple(_with_state(line, state_of) for line in lines)


def _with_state(line: str, state_of: Callable[[str], str | None]) -> str:
    match = _RUN_LINE.match(line)
    state = state_of(match[2]) if match else None
    return f"{match[1]} ({state}){line[match.end() :]}" if match and state else line


def is_active(job: Mapping[str, Any]) -> bool:
    return job.get("status") in _ACTIVE


def described_active(jobs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what runs or waits, the newest first; of many only some."""
    active = sorted(filter(is_active, jobs), key=lambda job: -(job.get("start_time") or 0))
    rest = (f"and {len(active) - _SHOWN} more",) if len(active) > _SHOWN else ()
    return (*map(described_job, active[:_SHOWN]), *rest)


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ENTRYPOINT_CHARS else f"{line[: _ENTRYPOINT_CHARS - 1]}…"


# --- Pending resource demands ---
# Work that Ray queues because no node has enough free capacity, from its autoscaler's report.


_DEMANDS_SHOWN = 3


def demand_reasons(report: Any) -> tuple[Waiting, ...]:
    """Return what waits for resources.

    `report` is `loadMetricsReport` of `/api/cluster_status`; the result is empty when nothing
    waits.
    """
    if not isinstance(report, dict):
        return ()
    lines = [*_tasks(report.get("resourceDemand")), *_groups(report.get("pgDemand"))]
    if not lines:
        return ()
    rest = f" and {len(lines) - _DEMANDS_SHOWN} more" if len(lines) > _DEMANDS_SHOWN else ""
    return (
        Waiting(
            message=f"Ray has pending resource demands: {', '.join(lines[:_DEMANDS_SHOWN])}{rest}",
            remedy="wait until running jobs end, add resources with `llmops scale`, or request"
            " less in the config",
            kind="demand",
        ),
    )


def _tasks(entries: Any) -> Iterator[str]:
    """Read entries such as `[{"GPU": 1.0}, 8]`, eight tasks of one GPU each."""
    for shape, count in _counted(entries):
        if reported := _shape(shape):
            yield f"{count} x {{{reported}}}"


def _groups(entries: Any) -> Iterator[str]:
    """Return placement groups, as Ray Train asks for its workers."""
    for group, count in _counted(entries):
        bundles = " + ".join(_tasks(group.get("bundles")))
        if bundles:
            yield f"{bundles} at once" if count == 1 else f"{count} times {bundles} at once"


def _counted(entries: Any) -> Iterator[tuple[dict[str, Any], int]]:
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            continue
        shape, count = entry
        if isinstance(shape, dict) and isinstance(count, int) and not isinstance(count, bool):
            yield shape, count


def _shape(resources: dict[str, Any]) -> str:
    return ", ".join(
        f"{value:g} {name}"
        for name, value in resources.items()
        # Resources that Ray adds to bind a task to its placement group mean nothing to users.
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.001
    )
