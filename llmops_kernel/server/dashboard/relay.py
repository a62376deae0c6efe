"""Relays requests to a Ray Dashboard; what it answers is data that no browser runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import escape
from typing import Any

import httpx
from jupyter_server.base.handlers import JupyterHandler
from tornado.iostream import StreamClosedError

from llmops_kernel.errors import ClusterUnreachableError, LLMOpsError
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.server.base import AUTH_RESOURCE
from llmops_kernel.server.dashboard.clients import LOCATION
from llmops_kernel.server.dashboard.proxy_rules import (
    DATA_POLICY,
    SAFE_METHODS,
    ProxyRefusal,
    request_headers,
    response_headers,
    target_path,
)
from llmops_kernel.server.manager import MANAGER_KEY, Manager

# A profile of a worker takes as long as it was asked to.
_TIMEOUT = httpx.Timeout(120.0, connect=5.0)
_WAITING_CHUNKS = 4


class RelayHandler(JupyterHandler):
    """Forwards requests to a cluster by its name, so no other host or port can be reached.

    Not an APIHandler: a page that polls is no sign of a user, and must not keep a Jupyter
    server from being culled.
    """

    auth_resource = AUTH_RESOURCE
    _relay: asyncio.Task[None] | None = None

    @property
    def manager(self) -> Manager:
        manager: Manager = self.settings[MANAGER_KEY]
        return manager

    @property
    def content_security_policy(self) -> str:
        return DATA_POLICY

    def set_default_headers(self) -> None:
        super().set_default_headers()
        # Not left to the configured headers: without these a browser may guess a type that runs.
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", self.content_security_policy)
        self.set_header("Referrer-Policy", "no-referrer")

    async def prepare(self, **kwargs: Any) -> None:
        pending = await super().prepare(**kwargs)
        if pending is not None:
            await pending
        self._body: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING_CHUNKS)

    def on_connection_close(self) -> None:
        """Cancel the request to Ray when the browser has closed its connection."""
        if self._relay is not None:
            self._relay.cancel()

    def start_relay(self, cluster: str, *, prefix: str) -> None:
        """Begin to forward this request. `prefix` is the address of the dashboard's root."""
        self._relay = asyncio.ensure_future(self._relayed(cluster, prefix))

    async def until_relayed(self) -> None:
        relay = self._relay
        assert relay is not None
        await asyncio.wait({relay})
        if not relay.cancelled():
            relay.result()  # Raises its error.

    async def _relayed(self, cluster: str, prefix: str) -> None:
        method = self.request.method or "GET"
        # Unchanged: what is encoded must stay encoded.
        target = target_path(self.request.path.removeprefix(prefix), self.request.query)
        connection = await self.connection(cluster)
        base = connection.dashboard_url.rstrip("/")
        headers = request_headers(self.request.headers, connection.headers(), method=method)
        content = None if method in SAFE_METHODS else self._chunks()
        try:
            # Not `client.request`: that would add headers of the client.
            request = httpx.Request(
                method,
                _url(base, target),
                headers=headers,
                content=content,
                extensions={"timeout": _TIMEOUT.as_dict()},
            )
            async with self.manager.dashboards.client(connection) as client:
                answer = await client.send(request, stream=True)
                async with aclosing(answer):
                    await self._pass_on(answer, url=str(request.url), base=base, prefix=prefix)
        except (httpx.HTTPError, httpx.StreamError) as error:
            await self._broken(cluster, error)

    async def connection(self, cluster: str) -> Connection:
        loop, backend = asyncio.get_running_loop(), self.manager.backend
        return await loop.run_in_executor(
            self.manager.executor, lambda: backend.provider_for(cluster).connect(cluster)
        )

    async def _chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._body.get()) is not None:
            yield chunk

    async def _pass_on(self, answer: httpx.Response, *, url: str, base: str, prefix: str) -> None:
        if answer.status_code < 200:
            raise httpx.RemoteProtocolError(f"it answered {answer.status_code}")
        self.set_status(answer.status_code)
        self.clear_header("Content-Type")
        received = {**answer.headers, **answer.extensions.get(LOCATION, {})}
        for name, value in response_headers(
            httpx.Headers(received), url=url, base=base, prefix=prefix
        ):
            self.set_header(name, value)
        try:
            await self.flush()
            if self.request.method != "HEAD":
                async for chunk in answer.aiter_raw():
                    self.write(chunk)
                    await self.flush()
            await self.finish()
        except StreamClosedError:
            return  # The browser left; leaving this block ends the request to Ray.

    async def _broken(self, cluster: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if self._headers_written:
            # Part of the answer is sent: only a closed connection shows the browser that it failed.
            self.log.warning("dashboard of %s: connection lost: %s", cluster, reason)
            self.request.connection.stream.close()  # type: ignore[union-attr]
            return
        raise ClusterUnreachableError(
            f"The Ray Dashboard of cluster {cluster!r} does not answer ({reason})",
            remedy="`llmops status` shows the cluster's state; resume it in the list of clusters",
        ) from error

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Show a page with message and remedy instead of the dashboard."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if not isinstance(error, LLMOpsError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(error.status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        remedy = f"<p>Try: {escape(error.remedy)}</p>" if error.remedy else ""
        self.finish(
            "<!doctype html><title>Ray Dashboard</title>"
            f'<body style="font-family: sans-serif"><p>{escape(error.message)}</p>{remedy}</body>'
        )

    def log_exception(self, *exc_info: Any) -> None:
        if not isinstance(exc_info[1], LLMOpsError):
            super().log_exception(*exc_info)

    def _log(self) -> None:
        # Ray answers 404 and 501 for its optional parts: not worth a line in this server's log.
        self.log.debug("%s %s %s", self.get_status(), self.request.method, self.request.path)


def _url(base: str, target: str) -> httpx.URL:
    """Return the address at the dashboard. Raises ProxyRefusal for what cannot be part of one."""
    url = httpx.URL(base)
    try:
        raw_path = (url.raw_path.decode().rstrip("/") + target).encode("ascii")
        return url.copy_with(raw_path=raw_path)
    except (httpx.InvalidURL, UnicodeError):
        raise ProxyRefusal(f"{target[:200]!r} is not a path of the Ray Dashboard") from None
