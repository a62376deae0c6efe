"""HTTP clients of dashboards far away, kept between requests: a handshake costs two trips."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx

from llmops_kernel.providers.dashboard import open_async_http
from llmops_kernel.providers.protocol import Connection

_MOST: Final = 16
LOCATION: Final = "llmops.location"
"""Extension of an answer under which its `Location` is found."""
_Key = tuple[str, str | None, int]


class DashboardClients:
    """Clients of one event loop. A client of a loopback address is not kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, tuple[Connection, httpx.AsyncClient]] = OrderedDict()

    @asynccontextmanager
    async def client(self, connection: Connection) -> AsyncIterator[httpx.AsyncClient]:
        if connection.route is not None:
            yield await self._take(connection)
            return
        async with _open(connection) as client:
            yield client

    async def _take(self, connection: Connection) -> httpx.AsyncClient:
        key = (connection.dashboard_url, connection.token, id(connection.route))
        if key not in self._kept:
            # The connection is kept along: another route must not get its route's id.
            self._kept[key] = (connection, _open(connection))
            if len(self._kept) > _MOST:
                _, (_, oldest) = self._kept.popitem(last=False)
                await oldest.aclose()
        self._kept.move_to_end(key)
        return self._kept[key][1]

    async def close(self) -> None:
        while self._kept:
            _, (_, client) = self._kept.popitem()
            await client.aclose()


def _open(connection: Connection) -> httpx.AsyncClient:
    return open_async_http(connection, event_hooks={"response": [_keep_location]})


async def _keep_location(answer: httpx.Response) -> None:
    """Move Location to the extensions: the client would parse it, and fail if it is no address."""
    if location := answer.headers.pop("Location", None):
        answer.extensions[LOCATION] = {"Location": location}
