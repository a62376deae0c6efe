"""services/proxy and pods/proxy: requests, streams and websockets to what runs behind them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from tests.k8s.standin.proxy.backends import Address, unavailable

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
CHUNK = 64 * 1024
_ABSOLUTE = re.compile(rb"""((?:href|src|action)=["'])(/[^/"'][^"']*)""")


class Proxy:
    """One client session for all that is proxied."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            )
        return self._session

    async def serve(
        self, http: web.Request, address: Address, rest: str, scheme: str
    ) -> web.StreamResponse:
        if not rest and http.method in ("GET", "HEAD"):
            raise web.HTTPMovedPermanently(f"{http.rel_url.raw_path}/{_query(http)}")
        host, port = address
        url = f"{scheme}://{host}:{port}{rest or '/'}{_query(http)}"
        prefix = http.rel_url.raw_path.removesuffix(rest)
        try:
            if http.headers.get("Upgrade", "").lower() == "websocket":
                return await self._websocket(http, url)
            return await self._request(http, url, prefix)
        except aiohttp.ClientConnectorError as error:
            text = f"dial tcp {host}:{port}: connect: {error.os_error.strerror or error}"
            raise unavailable(f"error trying to reach service: {text.lower()}") from error
        except aiohttp.ServerDisconnectedError as error:
            raise unavailable("error trying to reach service: EOF") from error

    async def _request(self, http: web.Request, url: str, prefix: str) -> web.StreamResponse:
        headers = _forwarded(http)
        body = _chunks(http) if http.can_read_body else None
        options = {"headers": headers, "data": body, "allow_redirects": False}
        from yarl import URL

        target = URL(url, encoded=True)
        async with self.session.request(
            http.method, target, skip_auto_headers=("User-Agent", "Accept"), **options
        ) as answer:
            return await _passed_on(http, answer, prefix)

    async def _websocket(self, http: web.Request, url: str) -> web.StreamResponse:
        offered = http.headers.get("Sec-WebSocket-Protocol", "")
        protocols = [item.strip() for item in offered.split(",") if item.strip()]
        headers = {
            key: value
            for key, value in _forwarded(http).items()
            if not key.lower().startswith("sec-websocket")
        }
        try:
            behind = await self.session.ws_connect(
                url, protocols=protocols, headers=headers, max_msg_size=0, autoping=False
            )
        except aiohttp.WSServerHandshakeError as error:
            return web.Response(status=error.status, text=error.message)
        chosen = [behind.protocol] if behind.protocol else []
        front = web.WebSocketResponse(protocols=chosen, max_msg_size=0, autoping=False)
        await front.prepare(http)
        ways = [asyncio.create_task(_pump(a, b)) for a, b in ((front, behind), (behind, front))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await behind.close(code=front.close_code or 1000)
            await front.close(code=behind.close_code or 1000)
        return front


def _query(http: web.Request) -> str:
    text = http.rel_url.raw_query_string
    return f"?{text}" if text else ""


def _forwarded(http: web.Request) -> dict[str, str]:
    """The caller's headers, without what was meant for this server."""
    named = {item.strip().lower() for item in http.headers.get("Connection", "").split(",")}
    dropped = HOP_BY_HOP | named | {"host", "authorization"}
    headers = {k: v for k, v in http.headers.items() if k.lower() not in dropped}
    headers["X-Forwarded-For"] = http.remote or ""
    headers["X-Forwarded-Host"] = http.host
    headers["X-Forwarded-Proto"] = "https"
    headers["X-Forwarded-Uri"] = http.rel_url.raw_path
    return headers


async def _chunks(http: web.Request) -> AsyncIterator[bytes]:
    async for chunk in http.content.iter_chunked(CHUNK):
        yield chunk


async def _passed_on(
    http: web.Request, answer: aiohttp.ClientResponse, prefix: str
) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for key, value in answer.headers.items():
        if key.lower() not in HOP_BY_HOP:
            response.headers.add(key, _moved(value, prefix) if key == "Location" else value)
    is_page = answer.headers.get("Content-Type", "").startswith("text/html")
    if is_page and "Content-Encoding" not in answer.headers:
        body = _ABSOLUTE.sub(
            lambda found: found[1] + prefix.encode() + found[2], await answer.read()
        )
        response.headers["Content-Length"] = str(len(body))
        await response.prepare(http)
        await response.write(body)
        return response
    await response.prepare(http)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except aiohttp.ClientPayloadError:
        # Half an answer must not look like a whole one.
        if http.transport is not None:
            http.transport.abort()
    return response


def _moved(location: str, prefix: str) -> str:
    is_below = location.startswith("/") and not location.startswith(("//", prefix))
    return prefix + location if is_below else location


async def _pump(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in source:
        match message.type:
            case aiohttp.WSMsgType.TEXT:
                await target.send_str(message.data)
            case aiohttp.WSMsgType.BINARY:
                await target.send_bytes(message.data)
            case aiohttp.WSMsgType.PING:
                await target.ping(message.data)
            case aiohttp.WSMsgType.PONG:
                await target.pong(message.data)
