"""Subresources that are no objects: logs, proxies, tokens."""

from __future__ import annotations

import time

from aiohttp import web

from tests.k8s.standin.api.auth import User
from tests.k8s.standin.api.handlers import answer
from tests.k8s.standin.api.routing import Route, service_name
from tests.k8s.standin.api.state import State
from tests.k8s.standin.objects.errors import ApiError, not_found
from tests.k8s.standin.objects.kinds import POD, Kind
from tests.k8s.standin.objects.store import Snapshot, dump
from tests.k8s.standin.proxy.backends import pod_address, service_address
from tests.k8s.standin.proxy.http import Proxy
from tests.k8s.standin.proxy.logs import log


class Streams:
    """Hands a request on to the part that serves its subresource."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.proxy = Proxy()

    async def handle(
        self, http: web.Request, kind: Kind, route: Route, user: User
    ) -> web.StreamResponse:
        if route.subresource == "proxy":
            return await self._proxied(http, kind, route)
        found = self.state.store.get(kind, route.namespace, route.name)
        if found is None:
            raise not_found(kind.group, kind.plural, route.name)
        match route.subresource:
            case "log":
                return await log(http, self.state.store, found)
            case "token":
                return await self._token(http, found)
        raise ApiError(501, "NotImplemented", f"{route.resource} is not part of the stand-in")

    async def _proxied(self, http: web.Request, kind: Kind, route: Route) -> web.StreamResponse:
        scheme, name, port = service_name(route.name)
        store = self.state.store
        if kind is POD:
            pod = store.get(kind, route.namespace, name)
            if pod is None:
                raise not_found("", "pods", name)
            address = pod_address(pod, int(port or _first_port(pod)))
        else:
            address = service_address(
                *(store, route.namespace, name, port), controllers=self.state.controllers
            )
        return await self.proxy.serve(http, address, route.rest, scheme)

    async def _token(self, http: web.Request, account: Snapshot) -> web.Response:
        """A token of a service account, as `kubectl create token` asks for it."""
        body = await http.json() if http.can_read_body else {}
        seconds = float(body.get("spec", {}).get("expirationSeconds") or 3600)
        namespace, name = account.key
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        user = User(f"system:serviceaccount:{namespace}:{name}", groups)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        status = {
            "token": self.state.auth.issue(user, seconds),
            "expirationTimestamp": moment,
        }
        made = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"audiences": [], "expirationSeconds": int(seconds)},
            "status": status,
        }
        return answer(dump(made), 201)


def _first_port(pod: Snapshot) -> int:
    ports = [p for c in pod.body["spec"]["containers"] for p in c.get("ports") or ()]
    return int(ports[0]["containerPort"]) if ports else 80
