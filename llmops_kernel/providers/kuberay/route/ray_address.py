"""Addresses for Ray's own job client: `ray job submit --address llmops_ray://cluster -- ...`."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx

from llmops_kernel.errors import LLMOpsError, MissingDependencyError
from llmops_kernel.providers.dashboard import open_async_http
from llmops_kernel.providers.kuberay.api.client import open_kube
from llmops_kernel.providers.kuberay.api.paths import raycluster_path
from llmops_kernel.providers.kuberay.route.tunnel import connection_to
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.providers.registry import provider_for
from llmops_kernel.store import paths
from llmops_kernel.version import SUPPORTED_RAY

if TYPE_CHECKING:
    from aiohttp import web
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    from llmops_kernel.providers.protocol import Connection


_relays: dict[tuple[str, str | None], Relay] = {}


def get_job_submission_client_cluster_info(
    address: str,
    *,
    create_cluster_if_needed: bool | None = False,
    cookies: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    **_: Any,
) -> ClusterInfo:
    """Return where Ray's job client sends its requests.

    `address` is `namespace/cluster`, `context/namespace/cluster`, or a name that `llmops ls`
    shows. Ray's client supports neither client certificates nor credentials that expire, and
    verifies a followed log's certificate against public authorities only. For a cluster on
    Kubernetes it therefore connects to a relay on the loopback device of its own process, which
    handles all of these. Starts no cluster.
    """
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    connection = _connection(address)
    if connection.route is None:
        url, own_headers = connection.dashboard_url, connection.headers()
    else:
        relay = _relay(connection)
        url, own_headers = relay.url, relay.headers
    return ClusterInfo(
        address=url, cookies=cookies, metadata=metadata, headers={**(headers or {}), **own_headers}
    )


def _connection(address: str) -> Connection:
    # From the right: names of contexts contain slashes, namespaces and clusters do not.
    *context, namespace, name = ["", *address.strip("/").split("/")]
    if not namespace:
        return provider_for(name).connect(name)
    kube = open_kube("/".join(context).strip("/") or None)
    raycluster = kube.get(raycluster_path(namespace, name))
    return connection_to(kube, raycluster, home=paths.home())


def _relay(connection: Connection) -> Relay:
    key = (connection.dashboard_url, connection.token)
    if key not in _relays:
        _relays[key] = Relay(connection)
    return _relays[key]


# --- A relay on loopback, for programs that cannot use the route themselves ---


SECRET_HEADER: Final = "X-LLMOps-Relay"
CHUNK_BYTES: Final = 1 << 16
_TIMEOUT: Final = httpx.Timeout(300.0, connect=10.0)
_PASSED_ON: Final = ("Accept", "Accept-Encoding", "Content-Type", "Content-Length")
_PASSED_BACK: Final = ("Content-Type", "Content-Length", "Content-Encoding")
_REPLAYABLE_BYTES: Final = 1 << 20
"""A body up to this size is kept, so that it can be sent again with renewed credentials."""
_PING_S: Final = 20.0


class Relay:
    """Runs as long as its process. Accepts only clients that send the secret `headers`."""

    def __init__(self, connection: Connection) -> None:
        _require_aiohttp()
        self._connection = connection
        self._secret = secrets.token_urlsafe(32)
        self.local_port = _run_in_loop(self._start())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.local_port}"

    @property
    def headers(self) -> dict[str, str]:
        return {SECRET_HEADER: self._secret}

    async def _start(self) -> int:
        from aiohttp import web

        self._http = open_async_http(self._connection, timeout=_TIMEOUT)
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._runner = runner
        port: int = runner.addresses[0][1]
        return port

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        reported = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(reported.encode(), self._secret.encode()):
            return web.Response(status=403, text="This address belongs to another program")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._bridge(request)
        try:
            return await self._relay(request)
        except (httpx.HTTPError, httpx.StreamError) as error:
            return web.Response(status=502, text=f"The cluster does not answer: {error}")
        except LLMOpsError as error:
            return web.Response(status=502, text=str(error))

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        headers = {n: request.headers[n] for n in _PASSED_ON if n in request.headers}
        # The other client may not support every encoding that ours can decode.
        headers.setdefault("Accept-Encoding", "identity")
        outgoing = self._http.build_request(
            request.method,
            request.raw_path,
            headers=headers,
            content=await _body(request),
        )
        answer = await self._http.send(outgoing, stream=True)
        async with aclosing(answer):
            headers_back = {n: answer.headers[n] for n in _PASSED_BACK if n in answer.headers}
            response = web.StreamResponse(status=answer.status_code, headers=headers_back)
            await response.prepare(request)
            if request.method != "HEAD":
                async for chunk in answer.aiter_raw(CHUNK_BYTES):
                    await response.write(chunk)
            await response.write_eof()
            return response

    async def _bridge(self, request: web.Request) -> web.StreamResponse:
        """Stream log lines as they arrive. Ray's client needs no more than that."""
        import aiohttp
        from aiohttp import web

        async with aiohttp.ClientSession() as session:
            try:
                remote = await self._dial(session, request.raw_path)
            except aiohttp.WSServerHandshakeError as error:
                return web.Response(status=error.status, text=error.message)
            except (aiohttp.ClientError, OSError, LLMOpsError, httpx.HTTPError) as error:
                return web.Response(status=502, text=f"The cluster does not answer: {error}")
            local = web.WebSocketResponse(heartbeat=_PING_S, compress=False, max_msg_size=0)
            await local.prepare(request)
            tasks = [asyncio.ensure_future(_pump(remote, local))]
            tasks.append(asyncio.ensure_future(_pump(local, remote)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            code = remote.close_code or aiohttp.WSCloseCode.ABNORMAL_CLOSURE
            with suppress(Exception):
                await remote.close()
            if code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                # Not a proper close: the client must see that its log was cut off.
                assert request.transport is not None
                request.transport.abort()
            else:
                await local.close(code=code)
            return local

    async def _dial(self, session: Any, path: str) -> Any:
        """Connect with the current credentials, renewed once when they are rejected."""
        import aiohttp

        outgoing = self._http.build_request("GET", path)
        auth = self._http.auth or httpx.Auth()
        flow = auth.async_auth_flow(outgoing)
        outgoing = await anext(flow)
        route = self._connection.route
        is_tls = outgoing.url.scheme == "https"
        while True:
            try:
                return await session.ws_connect(
                    str(outgoing.url),
                    headers=_credentials(outgoing),
                    ssl=route.verify() if route and is_tls else True,
                    proxy=route.proxy() if route else None,
                    heartbeat=_PING_S,
                    max_msg_size=0,
                )
            except aiohttp.WSServerHandshakeError as error:
                try:
                    outgoing = await flow.asend(httpx.Response(error.status, request=outgoing))
                except StopAsyncIteration:
                    raise error from None


async def _body(request: web.Request) -> bytes | AsyncIterator[bytes] | None:
    if not request.can_read_body:
        return None
    if (request.content_length or _REPLAYABLE_BYTES + 1) <= _REPLAYABLE_BYTES:
        return await request.content.read(-1)
    return request.content.iter_chunked(CHUNK_BYTES)


def _credentials(request: httpx.Request) -> dict[str, str]:
    names = ("Authorization", "X-Ray-Authorization")
    return {name: request.headers[name] for name in names if name in request.headers}


async def _pump(source: Any, target: Any) -> None:
    import aiohttp

    async for message in source:
        if message.type == aiohttp.WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type == aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)


def _require_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "A relay to a cluster needs the package `aiohttp`, which is not installed",
            remedy=f"pip install 'ray[default]=={SUPPORTED_RAY}', which includes it",
        ) from None


# --- The one event loop of this process's relays, in a thread of its own that ends with it ---


T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def _run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in the loop and wait for it from another thread.

    The loop is started when first needed; a forked child gets its own.
    """
    with _lock:
        pid = os.getpid()
        if pid not in _loops:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="llmops-relay", daemon=True)
            thread.start()
            _loops.clear()
            _loops[pid] = loop
    return asyncio.run_coroutine_threadsafe(work, _loops[pid]).result()
