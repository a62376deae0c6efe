"""What answers in place of a head's dashboard: a few routes, and a count of the questions."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRay:
    """`with FakeRay() as ray:`; `ray.address` goes into the annotation of the head's pod."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.num_nodes = 1
        self.is_silent = False
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    def __enter__(self) -> FakeRay:
        ray = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                ray.asked.append(path)
                ray.headers.append(dict(self.headers))
                body = json.dumps(ray.answer(path)).encode()
                self.send_response(503 if ray.is_silent else 200)
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

    def answer(self, path: str) -> Any:
        if path == "/api/version":
            return {"ray_version": "2.60.0", "session_name": "session_1"}
        if path == "/api/jobs/":
            return self.jobs
        if path == "/api/v0/nodes":
            nodes = [{"state": "ALIVE", "resources_total": {"CPU": 4, "GPU": 8}}] * self.num_nodes
            return {"data": {"result": {"result": nodes}}}
        return {}
