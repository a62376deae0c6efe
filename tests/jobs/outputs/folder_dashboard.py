"""Ray's log API over a folder: what a dashboard answers of one node, and how it breaks off."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from llmops_kernel.providers.protocol import Connection

NODE = {"node_id": "n1", "state": "ALIVE", "is_head_node": True}


class FolderDashboard:
    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.read: list[str] = []
        """Files below `outputs` that were asked for, by their last part."""
        self.breaks_off = ""
        """The end of a name: of such a file only the beginning arrives."""
        handler = type("Handler", (_Handler,), {"dashboard": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def connection(self) -> Connection:
        return Connection(dashboard_url=f"http://127.0.0.1:{self._server.server_port}")

    def answer(self, path: str, query: Mapping[str, str]) -> bytes | None:
        if path == "/api/v0/nodes":
            return _json({"data": {"result": {"result": [NODE]}}})
        if path == "/api/v0/logs":
            found = [str(one.relative_to(self.logs)) for one in self.logs.glob(query["glob"])]
            return _json({"data": {"result": {"internal": found}}})
        if path == "/api/v0/logs/file" and query["lines"] == "-1":
            return (self.logs / query["filename"]).read_bytes()
        return None


class _Handler(BaseHTTPRequestHandler):
    dashboard: FolderDashboard

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        data = self.dashboard.answer(parts.path, query)
        if data is None:
            self.send_error(404)
            return
        name = query.get("filename", "")
        if "/outputs/" in name:
            self.dashboard.read.append(name.rpartition(".")[2])
        broken = self.dashboard.breaks_off
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:1000] if broken and name.endswith(broken) else data)

    def log_message(self, *_: Any) -> None:
        pass


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
