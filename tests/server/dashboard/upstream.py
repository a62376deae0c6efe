"""A small dashboard that remembers what it was asked, as clusters of the server under test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders
from tornado.iostream import StreamClosedError
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import Connection
from tests.server.conftest import ProviderTypes

TOKEN = "rays-own-token"
BIG_CHUNK = b"x" * 65536
BIG_CHUNKS = 400
QUALIFIED = "arn:aws:eks:cluster/prod/ml/lab"


@dataclass
class Upstream:
    port: int = 0
    seen: list[tuple[str, str, HTTPHeaders, bytes]] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0
    version: bytes = b"hello"
    """The answer to `/api/version`."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Answer(RequestHandler):
    upstream: Upstream

    def initialize(self, upstream: Upstream) -> None:
        self.upstream = upstream

    async def get(self, path: str) -> None:
        request = self.request
        seen = (request.method or "", request.uri or "", request.headers, request.body)
        self.upstream.seen.append(seen)
        self.set_header("Set-Cookie", "ray-authentication-token=hush; Path=/")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.set_header("X-Ray-Secret", "inside")
        if path == "api/version":
            self.write(self.upstream.version)
        elif path == "big":
            await self._send_big()
        elif path == "page":
            self.set_header("Content-Type", self.get_query_argument("type"))
            self.set_header("Clear-Site-Data", '"*"')
            self.set_header("Service-Worker-Allowed", "/")
            self.set_header("Access-Control-Allow-Origin", "*")
            self.set_header("Refresh", "0; url=/api/kernels")
            self.write("<script>stolen()</script>")
        elif path.startswith("redirect"):
            self.set_status(302)
            self.set_header("Location", self.get_query_argument("to"))
        elif path == "missing":
            self.set_status(404)
            self.write({"detail": "no such thing"})
        else:
            self.set_header("Content-Type", "application/x-anything")
            self.write(b"hello")

    head = post = put = delete = patch = get

    async def _send_big(self) -> None:
        try:
            for _ in range(BIG_CHUNKS):
                self.write(BIG_CHUNK)
                await self.flush()
                self.upstream.sent += 1
        except StreamClosedError:
            self.upstream.aborted.set()

    def on_connection_close(self) -> None:
        self.upstream.aborted.set()


@pytest.fixture
def upstream(
    provider_types: ProviderTypes, jp_asyncio_loop: asyncio.AbstractEventLoop
) -> Iterator[Upstream]:
    """A cluster `lab` whose dashboard this is; any other cluster is not there."""
    made = Upstream()
    sock, made.port = bind_unused_port()

    async def serve() -> HTTPServer:
        server = HTTPServer(Application([(r"/(.*)", Answer, {"upstream": made})]))
        server.add_sockets([sock])
        return server

    server = jp_asyncio_loop.run_until_complete(serve())

    class Lab(LocalProvider):
        def names(self) -> tuple[str, ...]:
            return ("lab", QUALIFIED)

        def connect(self, name: str) -> Connection:
            return Connection(dashboard_url=made.url, token=TOKEN)

    provider_types[:] = [Lab]
    yield made
    server.stop()
    jp_asyncio_loop.run_until_complete(server.close_all_connections())
