"""Routes for the tests that use the stand-in: objects, users, faults, figures."""

from __future__ import annotations

import asyncio
import collections
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.k8s.standin.api.auth import User
from tests.k8s.standin.api.faults import Fault
from tests.k8s.standin.api.handlers import answer
from tests.k8s.standin.api.state import State
from tests.k8s.standin.objects.errors import ApiError
from tests.k8s.standin.objects.store import Snapshot, dump

if TYPE_CHECKING:
    from tests.k8s.standin.api.server import Server

Body = dict[str, Any]


class Control:
    """Routes on a separate port, which still answers while the API is away."""

    def __init__(self, state: State, server: Server) -> None:
        self.state, self.server = state, server
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for name in ("put", "user", "crd", "remove_crd", "fault", "heal", "stats"):
            app.router.add_post(f"/{name}", self._route(name))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]

    def _route(self, name: str) -> Any:
        async def handle(http: web.Request) -> web.Response:
            body = await http.json()
            try:
                result = getattr(self, name)(body)
                return answer(dump(await result if inspect.isawaitable(result) else result))
            except ApiError as error:
                return answer(dump(error.status()), error.code)

        return handle

    def put(self, body: Body) -> Body:
        """Creates or replaces an object as it is, with its status."""
        registry, store = self.state.registry, self.state.store
        kind = registry.named(body["apiVersion"], body["kind"])
        if kind is None:
            raise ApiError(404, "NotFound", f"no kind {body['apiVersion']} {body['kind']}")
        meta = body["metadata"]
        namespace = meta.get("namespace", "default") if kind.namespaced else ""
        there = store.get(kind, namespace, meta["name"])
        if there is None:
            there = self.state.make(kind, body, namespace)
        merged = {**there.body["metadata"], **meta, "resourceVersion": str(store.next_version())}
        rest = {k: v for k, v in body.items() if k not in ("apiVersion", "kind", "metadata")}
        kept = {k: v for k, v in there.body.items() if k in ("status", "spec", "data")}
        snapshot = Snapshot(kind, {**kept, **rest, "metadata": merged}, there.owners)
        store.put(snapshot)
        return snapshot.full()

    def user(self, body: Body) -> Body:
        user = User(body["name"], tuple(body.get("groups", ())))
        self.state.auth.add(body["token"], user, body.get("lifetime_s"))
        return {}

    def crd(self, body: Body) -> Body:
        from tests.k8s.standin.api.server import read_definition

        definition = body.get("definition") or read_definition(Path(body["path"]))
        kind = self.state.define(definition)
        return {"plural": kind.plural, "versions": list(kind.versions)}

    def remove_crd(self, body: Body) -> Body:
        self.state.undefine(body["group"], body["plural"])
        return {}

    def fault(self, body: Body) -> Body:
        """A lasting fault, or something that happens once."""
        match body["kind"]:
            case "away":
                task = asyncio.create_task(self.server.away(body.get("seconds", 1.0)))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            case "drop-watch" | "410" | "close-watch" as kind:
                return {"watches": self._end_watches(kind, body.get("path", ""))}
            case "expire":
                self.state.auth.expire(body["token"])
            case _:
                self.state.faults.add(Fault(**body))
        return {}

    def _end_watches(self, kind: str, path: str) -> int:
        how = {"drop-watch": "drop", "410": "gone", "close-watch": "close"}[kind]
        if how == "gone":
            self.state.store.compact()
        met = [watch for watch in self.state.watches if re.search(path, watch.path)]
        for watch in met:
            watch.end(how)
        return len(met)

    async def heal(self, _: Body) -> Body:
        """Ends all faults; the API listens again when this answers."""
        self.state.faults.heal()
        self.server.come_back()
        await asyncio.gather(*self.tasks)
        return {}

    def stats(self, body: Body) -> Body:
        requests = dict(self.state.requests)
        asked_by = {user: sorted(asked) for user, asked in self.state.asked_by.items()}
        watches = collections.Counter(watch.path for watch in self.state.watches)
        if body.get("reset"):
            self.state.requests.clear()
            self.state.asked_by.clear()
        return {"requests": requests, "asked_by": asked_by, "watches": dict(watches)}
