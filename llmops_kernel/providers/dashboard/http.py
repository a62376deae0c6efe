"""Opens HTTP to a cluster's dashboard: the one module for routes, certificates and proxies."""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

    from llmops_kernel.providers.protocol import Connection

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# Ray refuses to change anything for a user agent that looks like a browser's.
USER_AGENT = "llmops-kernel"


def open_http(connection: Connection, **settings: Any) -> httpx.Client:
    """Open a client; paths such as `/api/version` are below the dashboard's address."""
    import httpx

    return httpx.Client(**_settings(connection), **settings)


def open_async_http(connection: Connection, **settings: Any) -> httpx.AsyncClient:
    """Return the same client for asyncio."""
    import httpx

    return httpx.AsyncClient(**_settings(connection), **settings)


def _settings(connection: Connection) -> dict[str, Any]:
    parts = urlsplit(connection.dashboard_url)
    is_tls = parts.scheme == "https"
    route = connection.route
    return {
        "base_url": connection.dashboard_url,
        "headers": {**connection.headers(), "User-Agent": USER_AGENT},
        "auth": route.auth() if route else None,
        # A proxy of the environment sees nothing of TLS, but all of plain HTTP, token included.
        "trust_env": is_tls and route is None and parts.hostname not in LOOPBACK,
        "proxy": route.proxy() if route and is_tls else None,
        "verify": _verify(connection) if is_tls else no_authorities(),
        # Credentials are sent only to the cluster, never to another address.
        "follow_redirects": False,
    }


def _verify(connection: Connection) -> Any:
    return connection.route.verify() if connection.route else True


@cache
def no_authorities() -> ssl.SSLContext:
    """Return a context without certificate authorities: loading them takes 0.1 s."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
