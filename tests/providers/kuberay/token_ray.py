"""A small dashboard that wants a token and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class TokenRay:
    """A context manager; checks tokens as Ray's own middleware does."""

    token: str | None = "right"
    seen: list[Seen] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> TokenRay:
        handler = type("Handler", (_Handler,), {"ray": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reported(self) -> str:
        """All headers of all requests."""
        return "\n".join(f"{k}: {v}" for one in self.seen for k, v in one.headers.items())


class _Handler(BaseHTTPRequestHandler):
    ray: TokenRay
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.ray.seen.append(Seen(self.command, self.path, headers, body))
        reported = headers.get("authorization") or headers.get("x-ray-authorization")
        if self.ray.token and reported != f"Bearer {self.ray.token}":
            status = 403 if reported else 401
            self._send(status, b"Forbidden: Invalid authentication token", "text/plain")
        elif self.path.startswith("/api/version"):
            answer = json.dumps({"ray_version": "2.60.0", "session_name": "s"})
            self._send(200, answer.encode(), "application/json")
        elif self.path.startswith("/api/jobs/"):
            self._send(404, b"Job x does not exist", "text/plain")
        else:
            self._send(200, b"{}", "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass
