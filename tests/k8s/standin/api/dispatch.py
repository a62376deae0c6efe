"""One request to the API: who, may they, a fault, and then the handler."""

from __future__ import annotations

import asyncio
import traceback

from aiohttp import web

from tests.k8s.standin.api import discovery
from tests.k8s.standin.api.auth import Ask, User
from tests.k8s.standin.api.handlers import (
    JSON,
    WRITE_TYPES,
    Handlers,
    answer,
    media_type,
    wants_table,
)
from tests.k8s.standin.api.reviews import is_review, review
from tests.k8s.standin.api.routing import Route, parse
from tests.k8s.standin.api.state import State
from tests.k8s.standin.api.streams import Streams
from tests.k8s.standin.api.watches import Watch
from tests.k8s.standin.objects.errors import ApiError, unsupported_media
from tests.k8s.standin.objects.kinds import Kind
from tests.k8s.standin.objects.store import dump

COUNTED_PATHS = 5000
BODY_LIMIT = 3 * 1024 * 1024
HEALTH = frozenset({"/healthz", "/readyz", "/livez"})


def not_here() -> web.Response:
    return web.Response(text="404 page not found\n", status=404)


class Api:
    """The whole API behind one function."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.handlers = Handlers(state)
        self.streams = Streams(state)

    async def handle(self, http: web.Request) -> web.StreamResponse:
        try:
            return await self._handle(http)
        except ApiError as error:
            response = answer(dump(error.status()), error.code, list(error.warnings))
            response.headers.update(error.headers)
            return response
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            traceback.print_exc()
            text = f"the stand-in broke: {type(error).__name__}: {error}"
            return answer(dump(ApiError(500, "InternalError", text).status()), 500)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        path = http.rel_url.raw_path
        route = parse(path)
        watching = http.query.get("watch") in ("true", "1")
        ask = route.ask(http.method, watching=watching) if route else Ask("get", path=path)
        self._count(f"{ask.verb} {path}")
        certificate = http.transport.get_extra_info("peercert") if http.transport else None
        user = self.state.auth.user(http.headers.get("Authorization", ""), certificate)
        asked = self.state.asked_by.setdefault(user.name, set())
        if len(asked) < COUNTED_PATHS:
            asked.add(f"{ask.verb} {path}")
        refused = await self._fault(http, ask, user)
        if refused is not None:
            return refused
        self.state.auth.require(user, ask)
        if route is None:
            return self._plain(http, path)
        if is_review(route) and http.method == "POST":
            if media_type(http) != JSON:
                raise unsupported_media(WRITE_TYPES)
            body = await http.json()
            return answer(dump(review(self.state.auth, user, route, body)), 201)
        kind = self.state.registry.find(route.group, route.version, route.plural)
        if kind is None or (kind.namespaced and route.name and not route.namespace):
            return not_here()
        response = await self._resource(http, kind, route, ask, user)
        faults = self.state.faults
        if faults.active and faults.loses(http.method, http.path_qs, ask.verb, user.name):
            assert http.transport is not None
            http.transport.abort()
        return response

    def _count(self, key: str) -> None:
        if key in self.state.requests or len(self.state.requests) < COUNTED_PATHS:
            self.state.requests[key] += 1
        self.state.requests["*"] += 1

    async def _fault(self, http: web.Request, ask: Ask, user: User) -> web.StreamResponse | None:
        faults = self.state.faults
        if not faults.active:
            return None
        about = (http.method, http.path_qs, ask.verb, user.name)
        if delay := faults.delay(*about):
            await asyncio.sleep(delay)
        refused = faults.refusal(*about, http.content_length or 0)
        if isinstance(refused, ApiError):
            raise refused
        if refused == "drop" and http.transport is not None:
            http.transport.abort()
            return web.Response()
        return None

    def _plain(self, http: web.Request, path: str) -> web.Response:
        if path.rstrip("/") in HEALTH:
            return web.Response(text="ok")
        found = discovery.answer(self.state.registry, path, http.host)
        return not_here() if found is None else answer(dump(found))

    async def _resource(
        self, http: web.Request, kind: Kind, route: Route, ask: Ask, user: User
    ) -> web.StreamResponse:
        if route.subresource and not self._known(kind, route.subresource):
            return not_here()
        if route.subresource not in ("", "status", "binding", "finalize"):
            return await self.streams.handle(http, kind, route, user)
        if (http.content_length or 0) > BODY_LIMIT:
            text = f"Request entity too large: limit is {BODY_LIMIT}"
            raise ApiError(413, "RequestEntityTooLarge", text)
        handlers = self.handlers
        match ask.verb:
            case "watch":
                return await self._watch(http, kind, route, user)
            case "list":
                return await handlers.list(http, kind, route)
            case "get":
                return await handlers.get(http, kind, route)
            case "create":
                return await handlers.create(http, kind, route)
            case "update":
                return await handlers.update(http, kind, route)
            case "patch":
                return await handlers.patch(http, kind, route, user)
            case "delete":
                return await handlers.delete(http, kind, route)
            case "deletecollection":
                return await handlers.delete_all(http, kind, route)
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method")

    @staticmethod
    def _known(kind: Kind, name: str) -> bool:
        return name in kind.subresources or (kind.kind, name) in {
            ("Pod", "binding"),
            ("Namespace", "finalize"),
        }

    async def _watch(
        self, http: web.Request, kind: Kind, route: Route, user: User
    ) -> web.StreamResponse:
        watch = Watch(
            *(self.state.store, kind, route.version, route.namespace, dict(http.query)),
            bookmark_s=self.state.bookmark_s,
            path=http.path,
            user=user.name,
            as_table=wants_table(http),
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        self.state.watches.add(watch)
        try:
            async for lines in watch.lines():
                await response.write(lines)
        except ConnectionError:
            return response
        finally:
            self.state.watches.discard(watch)
        if watch.ended == "drop" and http.transport is not None:
            http.transport.abort()
        return response
