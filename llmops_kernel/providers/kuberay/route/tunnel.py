"""The route from this process to a RayCluster's dashboard, wherever each of them runs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.api.paths import secrets_path, service_proxy_path
from llmops_kernel.providers.kuberay.resource import names, own_clusters
from llmops_kernel.providers.kuberay.resource.objects import Obj, one_line
from llmops_kernel.providers.kuberay.route.service_proxy import (
    DashboardRoute,
    GatewayBusy,
    GatewayRefusal,
    RayToken,
    TokenSecret,
    is_inside,
    resolves,
    service_host,
    token_secret_of,
)
from llmops_kernel.providers.protocol import Connection

if TYPE_CHECKING:
    from llmops_kernel.providers.kuberay.api.client import Kube


Raw = Mapping[str, Any]
PROBE_S: Final = 5.0
SECOND_CHOICE_S: Final = 60.0
"""How long a route is used that was taken only because a better one was refused or busy.

An API server that starts refuses everything to everybody, and a right may be granted later.
"""
_FOREVER: Final = float("inf")
_PLAIN: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_SHOWN: Final = 63


@dataclass(frozen=True)
class Target:
    """A RayCluster's dashboard, as Kubernetes describes it."""

    namespace: str
    name: str
    uid: str
    service: str
    port_name: str
    port: int
    secret: TokenSecret | None
    """The Secret with Ray's token; None if the cluster requires none."""

    @classmethod
    def of(cls, raycluster: Raw, *, namespace: str, own_secret: str = "") -> Target:
        """Read the target.

        Raises ClusterUnreachableError for a cluster that accepts no token of ours.
        """
        meta = raycluster.get("metadata") or {}
        name = str(meta.get("name", ""))
        head = (raycluster.get("spec") or {}).get("headGroupSpec") or {}
        status_head = (raycluster.get("status") or {}).get("head") or {}
        port = _port(head)
        return cls(
            namespace=str(meta.get("namespace") or namespace),
            name=name,
            uid=str(meta.get("uid", "")),
            service=_plain(
                str(status_head.get("serviceName") or _named(head) or names.head_service(name)),
                name=name,
            ),
            port_name=_plain(_port_name(head, port=port), name=name),
            port=port,
            secret=token_secret_of(raycluster, name=name, own_name=own_secret),
        )


@dataclass
class _Open:
    connection: Connection
    good_until_s: float = _FOREVER
    uid: str = ""


_Key = tuple[str, str, str, str, str, str | None]
_lock = threading.Lock()
_locks: dict[_Key, threading.Lock] = {}
_opened: dict[_Key, _Open] = {}


def open_route(
    kube: Kube,
    raycluster: Raw,
    access: Access | None = None,
    *,
    own_secret: str = "",
    second_choice_s: float = SECOND_CHOICE_S,
) -> Connection:
    """Open a connection that recovers from expired credentials, a new token and a new head pod.

    The route is chosen once per cluster and process, then remembered. `own_secret`: the Secret of
    Ray's token that the user's own template names. Raises
    ClusterUnreachableError with the error of each route when none works, and KubeError.
    """
    access = access or Access()
    target = Target.of(raycluster, namespace=kube.namespace, own_secret=own_secret)
    key = (kube.server, kube.context, target.namespace, target.name, *_asked(access))
    with _lock:
        own_lock = _locks.setdefault(key, threading.Lock())
    with own_lock:
        opened = _opened.get(key)
        if opened is not None and opened.uid != target.uid:
            opened = None  # Another cluster of that name, with another token.
        if opened is None or time.monotonic() > opened.good_until_s:
            opened = _find(_Routes(kube, target, access, second_choice_s))
            opened.uid = target.uid
            _opened[key] = opened
        return opened.connection


def close_routes() -> None:
    """Forget the routes of this process, for example at the end of a test."""
    with _lock:
        _opened.clear()
        _locks.clear()


def _asked(access: Access) -> tuple[str, str | None]:
    return access.way, access.url


def _find(routes: _Routes) -> _Open:
    by_method: dict[str, Callable[[], _Open]] = {
        "in-cluster": routes.in_cluster,
        "service-proxy": routes.service_proxy,
        "url": routes.url,
    }
    routes.read_token()  # Another route would not make the Secret the cluster's.
    if routes.access.way != "auto":
        return by_method[routes.access.way]()
    return routes.best()


class _Routes:
    """All routes to one dashboard."""

    def __init__(
        self,
        kube: Kube,
        target: Target,
        access: Access,
        second_choice_s: float,
    ) -> None:
        self._kube = kube
        self._target = target
        self.access = access
        self._second_choice_s = second_choice_s
        self._token: RayToken | None = None
        if target.secret is not None:
            path = secrets_path(target.namespace, target.secret.name)
            self._token = RayToken(
                kube, path=path, key=names.TOKEN_KEY, require=target.secret.require
            )

    def read_token(self) -> None:
        """Return the token. Raises KubeError, ClusterUnreachableError for a Secret of others."""
        if self._token is not None:
            self._token.value()

    def best(self) -> _Open:
        """Return the first route that works; each is tried once."""
        reported: list[str] = []
        denied: KubeDenied | None = None
        good_until_s = _FOREVER
        for name, open_candidate in self._candidates():
            try:
                candidate = open_candidate()
                _probe(candidate.connection)
            except (GatewayRefusal, GatewayBusy) as error:
                reported.append(f"{name}: {error}")
                good_until_s = time.monotonic() + self._second_choice_s
            except ClusterUnreachableError as error:
                reported.append(f"{name}: {error.message}")
                if isinstance(error, KubeDenied):
                    denied = denied or error
                    good_until_s = time.monotonic() + self._second_choice_s
            else:
                candidate.good_until_s = good_until_s
                return candidate
        if denied is not None:
            # The other routes are substitutes for the one that only lacks a right.
            if denied.code == 403:
                denied.remedy = f"{denied.remedy}; or {self._own_forward}"
            raise denied
        raise ClusterUnreachableError(
            f"Cannot reach the dashboard by any route: RayCluster {self._target.name} in namespace"
            f" {self._target.namespace}: {'; '.join(reported)}",
            remedy="the head pod may still be starting (`llmops status`); else allow services/proxy"
            f" (get, create, update, delete), or {self._own_forward}",
        )

    @property
    def _own_forward(self) -> str:
        """Return how kubectl makes an address of this machine."""
        target = self._target
        return (
            f"run `kubectl port-forward --context {self._kube.context} -n {target.namespace}"
            f" svc/{target.service} {target.port}` and set access: {{way: url, url:"
            f" 'http://localhost:{target.port}'}} in the template"
        )

    def _candidates(self) -> Iterator[tuple[str, Callable[[], _Open]]]:
        target = self._target
        if is_inside(self._kube) and resolves(
            service_host(target.service, namespace=target.namespace)
        ):
            yield "inside the cluster", self.in_cluster
        yield "service proxy", self.service_proxy
        if self.access.url:
            yield self.access.url, self.url

    def in_cluster(self) -> _Open:
        host = service_host(self._target.service, namespace=self._target.namespace)
        return self._open_at(
            f"http://{host}:{self._target.port}", description="the cluster's own network"
        )

    def service_proxy(self) -> _Open:
        target = self._target
        path = service_proxy_path(target.namespace, target.service, target.port_name)
        return self._open_at(
            f"{self._kube.server}{path}",
            description=f"the service proxy of context {self._kube.context}",
            is_proxied=True,
        )

    def url(self) -> _Open:
        if self.access.url is None:
            raise ClusterUnreachableError(
                "access.way is `url`, and there is no access.url",
                remedy="set access.url to the address of the Ingress or Route in the cluster"
                " template",
            )
        if self.access.sends_in_clear:
            raise ClusterUnreachableError(
                f"the cluster's token would be sent unencrypted to {self.access.url}",
                remedy="set access.url to an https:// address, or access.allow_http: true, in the"
                " cluster template",
            )
        return self._open_at(self.access.url.rstrip("/"), description="the address in its template")

    def _open_at(self, url: str, *, description: str, is_proxied: bool = False) -> _Open:
        route = DashboardRoute(
            self._kube, token=self._token, description=description, is_proxied=is_proxied
        )
        token = self._token.value() if self._token else None
        return _Open(Connection(dashboard_url=url, token=token, route=route))


def _probe(connection: Connection) -> None:
    """Ask for Ray's version. Raises ClusterUnreachableError, GatewayRefusal, GatewayBusy."""
    import httpx

    from llmops_kernel.providers.dashboard import open_http

    try:
        with open_http(connection, timeout=PROBE_S) as http:
            answer = http.get("/api/version")
    except (GatewayRefusal, GatewayBusy):
        raise
    except httpx.HTTPError as error:
        raise _no_answer(connection, str(error) or type(error).__name__) from error
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or answer.status_code == 404:
        raise _no_answer(connection, f"status {answer.status_code}")


def _no_answer(connection: Connection, reason: str) -> ClusterUnreachableError:
    return ClusterUnreachableError(f"no answer at {connection.dashboard_url} ({reason})")


def _plain(value: str, *, name: str) -> str:
    """Return a name that becomes part of an address. Raises ClusterUnreachableError for any other.

    Who may change the RayCluster writes it: `example.com/` would be a server of theirs, and `../`
    another object of the API server.
    """
    if not _PLAIN.fullmatch(value):
        raise ClusterUnreachableError(
            f"RayCluster {name} gives {value[:_SHOWN]!r} as the name of its head's Service or port,"
            f" which Kubernetes does not allow",
            remedy="correct headService, the ports of the head's container, or the status of the"
            " RayCluster",
        )
    return value


def _port(head: Raw) -> int:
    try:
        return int((head.get("rayStartParams") or {}).get("dashboard-port") or 0) or (
            names.DASHBOARD_PORT
        )
    except ValueError:
        return names.DASHBOARD_PORT


def _named(head: Raw) -> str | None:
    meta = (head.get("headService") or {}).get("metadata") or {}
    return meta.get("name")


def _port_name(head: Raw, *, port: int) -> str:
    """Return the name of the head's dashboard port: the Service uses the container's names."""
    spec = (head.get("template") or {}).get("spec") or {}
    containers = spec.get("containers") or [{}]
    ports = containers[0].get("ports") or []
    port_numbers = {
        str(port_entry.get("name")): port_entry.get("containerPort") for port_entry in ports
    }
    if names.DASHBOARD_PORT_NAME in port_numbers:
        return names.DASHBOARD_PORT_NAME
    return next((name for name, number in port_numbers.items() if number == port), None) or (
        names.DASHBOARD_PORT_NAME
    )


# --- Routes that this user has agreed to ---


def connection_to(kube: Kube, raycluster: Obj, *, home: Path) -> Connection:
    """Connect to a RayCluster; its token goes to no address that only its annotation names.

    Raises KubeError, ClusterUnreachableError.
    """
    try:
        return open_route(
            kube,
            raycluster,
            access=own_clusters.access_of(home, raycluster),
            own_secret=own_clusters.read(home, raycluster).secret,
        )
    except ClusterUnreachableError as error:
        url = own_clusters.refused_url(home, raycluster)
        if url is None:
            raise
        raise ClusterUnreachableError(
            f"{error.message}. Its annotation {names.ACCESS} names {one_line(repr(url))}, which"
            f" anybody who may change the cluster can set: no token is sent there",
            remedy=f"{error.remedy}; if you know that address, set access.url to it in your own"
            f" template of the cluster, and run `llmops up` with it",
        ) from error
