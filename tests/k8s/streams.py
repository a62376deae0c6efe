"""Subresources that are no objects: logs, proxies, port-forward, tokens."""

from __future__ import annotations

from aiohttp import web

from tests.k8s.answers import ApiError, bad_request, not_found
from tests.k8s.auth import User
from tests.k8s.kinds import Kind
from tests.k8s.routing import Route, service_name
from tests.k8s.state import State


class Streams:
    """Hands a request on to the part that serves its subresource."""

    def __init__(self, state: State) -> None:
        self.state = state

    async def handle(
        self, http: web.Request, kind: Kind, route: Route, user: User
    ) -> web.StreamResponse:
        name = service_name(route.name)[1] if route.subresource == "proxy" else route.name
        found = self.state.store.get(kind, route.namespace, name)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        if route.subresource == "log":
            return web.Response(status=204)
        if route.subresource == "portforward":
            raise bad_request("Upgrade request required")
        raise ApiError(501, "NotImplemented", route.subresource)
