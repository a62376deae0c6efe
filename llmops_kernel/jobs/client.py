"""Ray's dashboard over HTTP: jobs, packages, and the log files that carry the journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict

from llmops_kernel.errors import (
    ClusterError,
    ClusterUnreachableError,
    SubmissionError,
)
from llmops_kernel.hardware.load import busy_words, patience_s
from llmops_kernel.jobs.upload import PackageBody, broke_off, check_size, too_large_for_way
from llmops_kernel.providers.dashboard import LOOPBACK, open_http
from llmops_kernel.providers.protocol import Connection, Progress

JOB_TERMINAL = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
MAX_LOG_LINES = 50_000
GET_TRIES = 3
RETRY_WAIT_S = 0.2
LOST_ANSWER_S = 60.0
"""How long `submit` asks whether Ray has the job of a request whose answer was lost."""
_ASK_EVERY_S = 0.5
_SAY_EVERY_S = 10.0
_CONNECT_S = 5.0
_ANSWER_S = 15.0
_SUBMIT_S = 60.0
_UPLOAD_S = 300.0
_NO_SUCH_JOB = "does not exist"  # Ray's own words.
_list = list  # `JobsClient.list` hides the built-in inside the class.


class Job(BaseModel):
    """Ray's report on one submission."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    submission_id: str | None = None
    type: str = "SUBMISSION"
    status: str
    """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
    message: str | None = None
    error_type: str | None = None
    start_time: int | None = None
    """Unix milliseconds, as Ray has it."""
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    entrypoint: str = ""
    driver_node_id: str | None = None
    """None until the driver's supervisor runs."""
    driver_exit_code: int | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in JOB_TERMINAL


class JobsClient:
    """Thread-safe. Without an answer in time, each call raises ClusterUnreachableError."""

    def __init__(
        self, connection: Connection, *, cluster: str = "", progress: Progress | None = None
    ) -> None:
        """Connect; `progress` hears every 10 s that a submission is still waited for."""
        self._what = f"the dashboard of cluster {cluster!r}" if cluster else "the Ray dashboard"
        self._connection = connection
        self._url = connection.dashboard_url
        self._way = f", through {connection.route.describe()}," if connection.route else ""
        self._progress = progress
        self._is_here = urlsplit(self._url).hostname in LOOPBACK and connection.route is None
        self._http = open_http(connection, timeout=self._timeout(_ANSWER_S))

    def __repr__(self) -> str:
        return f"JobsClient({self._url!r})"

    @property
    def connection(self) -> Connection:
        """Return the connection, for talking to the same cluster by other means."""
        return self._connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Jobs

    def version(self) -> dict[str, str]:
        """Return the cluster's `ray_version`, `session_name` and other fields of Ray's answer."""
        answer: dict[str, str] = self._get("/api/version").json()
        return answer

    def submit(
        self,
        *,
        entrypoint: str,
        submission_id: str,
        runtime_env: Mapping[str, Any],
        metadata: Mapping[str, str],
    ) -> None:
        """Hand a job to Ray. Safe against a connection cut between request and answer.

        A cut may be an API server that restarts: Ray is asked for up to a minute then whether it
        has the job, because a job that runs must not be reported as one that failed.
        """
        body = {
            "entrypoint": entrypoint,
            "submission_id": submission_id,
            "runtime_env": dict(runtime_env),
            "metadata": dict(metadata),
        }
        for last in (False, True):
            try:
                with self._saying(f"Ray has not accepted {submission_id} yet"):
                    answer = self._http.post(
                        "/api/jobs/", json=body, timeout=self._timeout(_SUBMIT_S)
                    )
            except httpx.TransportError as error:
                if self._has_job(submission_id, after=error):
                    return  # Ray had it before the line went.
                if last:
                    raise self._unreachable(error) from error
            else:
                self._raise_for(answer, f"submit job {submission_id}", error=SubmissionError)
                return

    def _has_job(self, submission_id: str, *, after: httpx.TransportError) -> bool:
        """Return whether Ray has the job. Raises ClusterError when nobody answers."""
        was_sent = not isinstance(after, (httpx.ConnectError, httpx.ConnectTimeout))
        until_s = time.monotonic() + (self._patience_s(LOST_ANSWER_S) if was_sent else 0.0)
        while True:
            try:
                return self.get(submission_id) is not None
            except ClusterError:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(_ASK_EVERY_S)

    def get(self, submission_id: str) -> Job | None:
        """Return the job; None if this cluster has no such job."""
        answer = self._get(f"/api/jobs/{submission_id}", missing_ok=True)
        if answer.status_code != 404:
            return Job.model_validate(answer.json())
        if _NO_SUCH_JOB in answer.text:
            return None
        # Some ingresses answer for a service they have lost; that says nothing about the job.
        raise ClusterUnreachableError(
            f"{self._what} at {self._url}{self._way} does not answer; another server at this"
            f" address answers"
            f" {last_line(answer.text)!r}",
            remedy="`llmops status` shows the cluster's state",
        )

    def list(self) -> list[Job]:
        """Return submitted jobs, newest first; drivers started by other means are excluded."""
        jobs = [Job.model_validate(item) for item in self._get("/api/jobs/").json()]
        submissions = [job for job in jobs if job.type == "SUBMISSION"]
        return sorted(submissions, key=lambda job: job.start_time or 0, reverse=True)

    def stop(self, submission_id: str) -> bool:
        """Ask the job to stop and return at once; False when it was over already."""
        answer = self._send("POST", f"/api/jobs/{submission_id}/stop")
        if answer.status_code == 404:
            return False
        self._raise_for(answer, f"stop job {submission_id}")
        return bool(answer.json().get("stopped"))

    def delete(self, submission_id: str) -> None:
        """Forget an ended job; an absent one is not an error."""
        answer = self._send("DELETE", f"/api/jobs/{submission_id}")
        if answer.status_code != 404:
            self._raise_for(answer, f"delete job {submission_id}")

    # Packages

    def package_exists(self, name: str) -> bool:
        """Return whether the cluster has `_ray_pkg_<hash>.zip`; keeps it for ten minutes more."""
        return self._get(f"/api/packages/gcs/{name}", missing_ok=True).status_code == 200

    def upload_package(self, path: Path, *, name: str) -> int:
        """Send a package, streamed; returns its size in bytes."""
        size_bytes = path.stat().st_size
        check_size(self._connection, name=name, size_bytes=size_bytes)
        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/zip"}
        url = f"/api/packages/gcs/{name}"
        for last in (False, True):
            try:
                answer = self._http.put(
                    url,
                    content=PackageBody(path),
                    headers=headers,
                    timeout=self._timeout(_UPLOAD_S),
                )
                break
            except httpx.TransportError as error:
                if last:
                    reported = broke_off(
                        self._connection, name=name, size_bytes=size_bytes, error=error
                    )
                    raise reported or self._unreachable(error) from error
        if answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise too_large_for_way(self._connection, name=name, size_bytes=size_bytes)
        self._raise_for(answer, f"store package {name}")
        return size_bytes

    # Logs

    def node_ids(self) -> _list[str]:
        """Return nodes that are alive, the head first."""
        answer = self._get("/api/v0/nodes", params={"limit": "1000"}).json()
        nodes = [n for n in answer["data"]["result"]["result"] if n.get("state") == "ALIVE"]
        return [n["node_id"] for n in sorted(nodes, key=lambda n: not n.get("is_head_node"))]

    def log_files(self, node_id: str, *, glob: str, strict: bool = False) -> _list[str]:
        """Return paths below the node's log folder; empty when the node does not answer.

        `strict` raises ClusterUnreachableError then.
        """
        answer = self._get("/api/v0/logs", params={"node_id": node_id, "glob": glob}, any_ok=True)
        if answer.status_code != 200:
            if strict:
                raise ClusterUnreachableError(
                    f"Node {node_id[:8]} did not return the list of its log files",
                    remedy="`llmops status` shows the cluster's state",
                )
            return []
        groups: dict[str, _list[str]] = answer.json()["data"]["result"]
        return sorted(name for names in groups.values() for name in names)

    def read_log(self, node_id: str, filename: str, *, lines: int) -> bytes | None:
        """Return the last lines of a file below the node's log folder, -1 for all; None without it.

        Ray's `/logs/stream` is avoided on purpose: each reader that leaves while the file
        is silent keeps a slot, and at a hundred of them the cluster's whole state API hangs
        (seen with Ray 2.60).
        """
        params = {"node_id": node_id, "filename": filename, "lines": str(lines)}
        answer = self._get("/api/v0/logs/file", params=params, any_ok=True)
        return answer.content if answer.status_code == 200 else None

    def driver_log(self, job: Job, *, lines: int = 200) -> str:
        """Return the driver's last lines of output, never the whole file; empty before it runs."""
        if job.driver_node_id is None or job.submission_id is None or lines < 1:
            return ""
        name = f"job-driver-{job.submission_id}.log"
        data = self.read_log(job.driver_node_id, name, lines=min(lines, MAX_LOG_LINES))
        return (data or b"").decode(errors="replace")

    # Plumbing

    def _get(
        self,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        missing_ok: bool = False,
        any_ok: bool = False,
    ) -> httpx.Response:
        for tries_left in reversed(range(GET_TRIES)):
            try:
                answer = self._http.get(url, params=params)
                break
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if not tries_left:
                    raise self._unreachable(error) from error
                time.sleep(RETRY_WAIT_S)
            except httpx.TransportError as error:  # A time-out has waited long enough.
                raise self._unreachable(error) from error
        if not (missing_ok and answer.status_code == 404):
            self._raise_for(answer, f"answer {url}", any_ok=any_ok)
        return answer

    def _send(self, method: str, url: str) -> httpx.Response:
        try:
            return self._http.request(method, url)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _raise_for(
        self,
        answer: httpx.Response,
        action: str,
        *,
        any_ok: bool = False,
        error: type[SubmissionError] | type[ClusterError] = ClusterError,
    ) -> None:
        if answer.status_code in (401, 403):
            raise ClusterUnreachableError(
                f"{self._what} at {self._url} rejected the token",
                remedy="another Ray cluster may be using this address: `llmops status` shows the"
                " cluster's state, `llmops up` starts it again",
            )
        if not any_ok and answer.status_code >= 400:
            raise error(
                f"{self._what} could not {action}: {last_line(answer.text)}",
                remedy="`llmops status` shows the cluster's state",
            )

    def _unreachable(self, error: httpx.TransportError) -> ClusterUnreachableError:
        busy = busy_words() if self._is_here else ""
        reason = "; ".join(filter(None, [str(error) or type(error).__name__, busy]))
        later = "try again when the machine is less busy; " if busy else ""
        return ClusterUnreachableError(
            f"{self._what} at {self._url}{self._way} does not answer ({reason})",
            remedy=f"{later}`llmops status` shows the cluster's state; `llmops up` starts it again",
        )

    def _patience_s(self, usual_s: float) -> float:
        """Return the time to wait: a busy machine's own dashboard is slow."""
        return patience_s(usual_s) if self._is_here else usual_s

    def _timeout(self, usual_s: float) -> httpx.Timeout:
        return httpx.Timeout(self._patience_s(usual_s), connect=self._patience_s(_CONNECT_S))

    @contextmanager
    def _saying(self, action: str) -> Iterator[None]:
        """Report every 10 s how long something takes already."""
        ended = threading.Event()
        began_s = time.monotonic()

        def say() -> None:
            while self._progress is not None and not ended.wait(_SAY_EVERY_S):
                busy = busy_words() if self._is_here else ""
                elapsed = f"{time.monotonic() - began_s:.0f} s"
                self._progress(f"{action} ({'; '.join(filter(None, [elapsed, busy]))})")

        if self._progress is not None:
            threading.Thread(target=say, daemon=True, name="llmops-waiting").start()
        try:
            yield
        finally:
            ended.set()


def last_line(text: str) -> str:
    """Return the last informative line of one of Ray's tracebacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" .\t")]
    return lines[-1][:500] if lines else "no reason given"
