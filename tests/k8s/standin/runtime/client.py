"""What controllers need of the Kubernetes API: calls, and mirrors that follow lists."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

Obj = dict[str, Any]
Changed = Callable[[str, Obj], None]
"""Called with ADDED, MODIFIED or DELETED and the object."""
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    def __init__(self, code: int, status: Obj):
        super().__init__(status.get("message") or f"HTTP {code}")
        self.code = code
        self.reason = status.get("reason", "")


TROUBLE = (ApiError, aiohttp.ClientError, TimeoutError, ConnectionError)
"""What a call may raise: a refusal, or a server that is away."""
_PATIENCE_S = 180.0


class Api:
    """One user's connection to an API server; controllers of one process share it."""

    def __init__(self, url: str, *, ca_file: str, token: str):
        self.url, self.ca_file = url.rstrip("/"), ca_file
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=64)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=60, connect=10),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Obj | None = None,
        content_type: str = "application/json",
        **params: str,
    ) -> Obj:
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(
            method, self.url + path, data=data, headers=headers, params=params
        ) as response:
            text = await response.text()
            answer = json.loads(text) if text.lstrip().startswith("{") else {"message": text}
            if response.status >= 400:
                raise ApiError(response.status, answer)
            return answer

    async def _patiently(self, method: str, path: str, **more: Any) -> Obj:
        """Calls that may be made twice are, while the server is away or busy: nobody's pods die
        of that."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return await self.call(method, path, **more)
            except TROUBLE as error:
                is_refused = isinstance(error, ApiError) and error.code not in (429, 500, 503)
                if is_refused or time.monotonic() > deadline_s:
                    raise
            await asyncio.sleep(0.5)

    async def get(self, path: str) -> Obj:
        return await self._patiently("GET", path)

    async def create(self, path: str, body: Obj) -> Obj:
        return await self.call("POST", path, body=body)

    async def replace(self, path: str, body: Obj) -> Obj:
        return await self.call("PUT", path, body=body)

    async def merge(self, path: str, patch: Obj, **params: str) -> Obj:
        return await self._patiently("PATCH", path, body=patch, content_type=MERGE, **params)

    async def delete(self, path: str, *, at_once: bool = True) -> Obj:
        """At once as a kubelet ends a pod, or as it asks for itself; absent is fine."""
        try:
            return await self._patiently(
                "DELETE", path, **({"gracePeriodSeconds": "0"} if at_once else {})
            )
        except ApiError as error:
            if error.code != 404:
                raise
            return {}

    async def watch(self, path: str, *, resource_version: str) -> AsyncIterator[tuple[str, Obj]]:
        assert self._session is not None
        params = {"watch": "1", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, connect=10, sock_read=None)
        async with self._session.get(self.url + path, params=params, timeout=timeout) as response:
            if response.status >= 400:
                raise ApiError(response.status, {"message": await response.text()})
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    yield event["type"], event["object"]


def key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Mirror:
    """All objects of one kind, kept true by list and watch.

    What a controller writes itself is put in at once, so that it never acts on a list in which
    its own last act is missing.
    """

    def __init__(self, api: Api, path: str):
        self.items: dict[tuple[str, str], Obj] = {}
        self.synced = asyncio.Event()
        self._api, self._path = api, path
        self._listeners: list[Changed] = []
        self._gone: dict[str, None] = {}

    def listen(self, changed: Changed) -> None:
        self._listeners.append(changed)

    def get(self, namespace: str, name: str) -> Obj | None:
        return self.items.get((namespace, name))

    def put(self, obj: Obj) -> None:
        old = self.items.get(key(obj))
        is_other = old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]
        if obj["metadata"]["uid"] in self._gone:
            return
        if old is not None and not is_other and version(old) >= version(obj):
            return
        self.items[key(obj)] = obj
        self._report("MODIFIED" if old is not None and not is_other else "ADDED", obj)

    def drop(self, obj: Obj) -> None:
        self._gone[obj["metadata"]["uid"]] = None
        while len(self._gone) > 10_000:
            del self._gone[next(iter(self._gone))]
        old = self.items.get(key(obj))
        if old is not None and old["metadata"]["uid"] == obj["metadata"]["uid"]:
            del self.items[key(obj)]
            self._report("DELETED", obj)

    def _report(self, event: str, obj: Obj) -> None:
        for listener in self._listeners:
            listener(event, obj)

    async def run(self) -> None:
        """For ever: list, then follow; a server that is away or forgets is asked again."""
        while True:
            try:
                found = await self._list()
                await self._follow(found)
            except (*TROUBLE, ValueError):
                await asyncio.sleep(0.5)

    async def _list(self) -> str:
        answer = await self._api.get(self._path)
        seen = {obj["metadata"]["uid"] for obj in answer["items"]}
        for obj in list(self.items.values()):
            if obj["metadata"]["uid"] not in seen:
                self.drop(obj)
        for obj in answer["items"]:
            self.put(obj)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, resource_version: str) -> None:
        while True:
            newest = resource_version
            async for event, obj in self._api.watch(self._path, resource_version=newest):
                if event == "ERROR":
                    return
                resource_version = obj["metadata"]["resourceVersion"]
                if event == "DELETED":
                    self.drop(obj)
                elif event != "BOOKMARK":
                    self.put(obj)
            await asyncio.sleep(0.05)
