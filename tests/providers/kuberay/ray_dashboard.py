"""Answers as a head's dashboard does: nodes, jobs that can be stopped, run journals and logs."""

from __future__ import annotations

import fnmatch
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NODE = "n" * 56


class RayDashboard:
    """`with RayDashboard() as ray:`; `ray.address` goes into the annotation of the head's pod.

    `files` are those below the node's log folder, by path. `asked` and `headers` are of each
    request.
    """

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.activities: dict[str, Any] = {}
        self.num_nodes = 1
        self.is_silent = False
        self.refuses: set[str] = set()
        """Files that are listed and cannot be read."""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.stops: list[str] = []

    def __enter__(self) -> RayDashboard:
        ray = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.reply(ray.answer(self.path))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.reply(ray.stop(self.path))

            do_PUT = do_POST

            def reply(self, answer: Any) -> None:
                ray.asked.append(self.path.partition("?")[0])
                ray.headers.append(dict(self.headers))
                code = 503 if ray.is_silent else 404 if answer is None else 200
                answer = b"Job does not exist" if code == 404 else answer
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(code)
                if not isinstance(answer, bytes):
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def run(self, submission_id: str, *, status: str = "RUNNING", ago_s: float = 60.0) -> None:
        """A job that was submitted; an ended one ended so long ago."""
        now_ms = int((time.time() - ago_s) * 1000)
        self.jobs.append(
            {
                "type": "SUBMISSION",
                "submission_id": submission_id,
                "status": status,
                "start_time": now_ms - 1000,
                "end_time": None if status == "RUNNING" else now_ms,
                "driver_node_id": NODE,
                "metadata": {},
            }
        )

    def answer(self, url: str) -> Any:
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        if path == "/api/version":
            return {"ray_version": "2.60.0", "session_name": "session_1"}
        if path == "/api/jobs/":
            return self.jobs
        if path.startswith("/api/jobs/"):
            return self._job(path.rpartition("/")[2])
        if path == "/api/component_activities":
            return self.activities
        if path == "/api/v0/nodes":
            node = {"state": "ALIVE", "node_id": NODE, "is_head_node": True}
            node["resources_total"] = {"CPU": 4, "GPU": 8}
            return {"data": {"result": {"result": [node] * self.num_nodes}}}
        if path == "/api/v0/logs":
            names = [name for name in self.files if fnmatch.fnmatch(name, query["glob"][0])]
            return {"data": {"result": {"worker_out": names}}}
        if path == "/api/v0/logs/file":
            return self._file(query["filename"][0], int(query["lines"][0]))
        return {}

    def _job(self, submission_id: str) -> Any:
        return next((job for job in self.jobs if job["submission_id"] == submission_id), None)

    def _file(self, name: str, lines: int) -> bytes | None:
        data = None if name in self.refuses else self.files.get(name)
        if data is None or lines < 0:
            return data
        return b"".join(data.splitlines(keepends=True)[-lines:])

    def stop(self, url: str) -> Any:
        submission_id = urlsplit(url).path.split("/")[-2]
        self.stops.append(submission_id)
        job = self._job(submission_id)
        if job is None or job["status"] != "RUNNING":
            return {"stopped": False}
        job |= {"status": "STOPPED", "end_time": int(time.time() * 1000)}
        return {"stopped": True}
