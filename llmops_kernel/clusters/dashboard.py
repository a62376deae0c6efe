"""What a head's dashboard answers over REST, without `import ray`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmops_kernel.clusters.provider import Connection

_ACTIVE_JOBS = {"PENDING", "RUNNING"}


@dataclass(frozen=True)
class Usage:
    """Totals over all nodes; None is unknown."""

    num_nodes: int | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    cpus_used: float | None = None
    gpus_used: float | None = None
    jobs_running: int | None = None


class Dashboard:
    """A short-lived client; every answer that does not come in time is None."""

    def __init__(self, connection: Connection, *, timeout_s: float = 2.0) -> None:
        import httpx

        # trust_env off: no proxy of the environment may see loopback traffic and its token.
        self._http = httpx.Client(
            base_url=connection.dashboard_url,
            headers={**connection.headers(), "User-Agent": "llmops-kernel"},
            timeout=timeout_s,
            trust_env=False,
        )

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def session_name(self) -> str | None:
        """Of the Ray that answers there to our token."""
        answer = self._get("/api/version")
        return answer.get("session_name") if isinstance(answer, dict) else None

    def usage(self) -> Usage:
        nodes = self._nodes()
        used = self._used()
        return Usage(
            num_nodes=None if nodes is None else len(nodes),
            num_cpus=_total(nodes, "CPU"),
            num_gpus=_total(nodes, "GPU"),
            cpus_used=None if used is None else used.get("CPU", [0.0])[0],
            gpus_used=None if used is None else used.get("GPU", [0.0])[0],
            jobs_running=self._jobs_running(),
        )

    def _nodes(self) -> list[dict[str, Any]] | None:
        """Resources of each living node."""
        answer = self._get("/api/v0/nodes?detail=1")
        with suppress(KeyError, TypeError):
            rows = answer["data"]["result"]["result"]
            return [row["resources_total"] for row in rows if row["state"] == "ALIVE"]
        return None

    def _used(self) -> dict[str, list[float]] | None:
        """`{"CPU": [used, total], ...}`; None until the autoscaler's first report (about 5 s)."""
        answer = self._get("/api/cluster_status")
        with suppress(KeyError, TypeError):
            usage: dict[str, list[float]] = answer["data"]["clusterStatus"]["loadMetricsReport"][
                "usage"
            ]
            return usage
        return None

    def _jobs_running(self) -> int | None:
        jobs = self._get("/api/jobs/")
        with suppress(KeyError, TypeError):
            return sum(job["status"] in _ACTIVE_JOBS for job in jobs)
        return None

    def _get(self, path: str) -> Any:
        import httpx

        try:
            answer = self._http.get(path)
            return answer.json() if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError):
            return None


def _total(nodes: list[dict[str, Any]] | None, resource: str) -> float | None:
    return None if nodes is None else sum(float(node.get(resource, 0)) for node in nodes)
