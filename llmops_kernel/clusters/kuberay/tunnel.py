"""The way from this process to a RayCluster's dashboard, wherever either of them is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from llmops_kernel.clusters.kuberay import names
from llmops_kernel.clusters.kuberay.forward import PortForward
from llmops_kernel.clusters.kuberay.inside import is_inside, resolves, service_host
from llmops_kernel.clusters.kuberay.kube_paths import (
    pods_path,
    secrets_path,
    service_proxy_path,
)
from llmops_kernel.clusters.kuberay.objects import dig, fields, objects, text
from llmops_kernel.clusters.kuberay.route import (
    DashboardRoute,
    GatewayBusy,
    GatewayRefusal,
    RayToken,
)
from llmops_kernel.clusters.provider import Connection
from llmops_kernel.config.kuberay import Access
from llmops_kernel.errors import ClusterUnreachableError, MissingDependencyError

if TYPE_CHECKING:
    from llmops_kernel.clusters.kuberay.kube import Kube

Raw = Mapping[str, Any]
PROBE_S: Final = 5.0
SECOND_CHOICE_S: Final = 60.0
"""A way taken only because a better one did not work at the moment counts for so long."""
_FOREVER: Final = float("inf")


@dataclass(frozen=True)
class Target:
    """A RayCluster's dashboard, as Kubernetes knows it."""

    namespace: str
    name: str
    uid: str
    service: str
    port_name: str
    port: int
    secret: str | None
    """With Ray's token; None when the cluster asks for none."""

    @classmethod
    def of(cls, raycluster: Raw, *, namespace: str) -> Target:
        """Raises ClusterUnreachableError for a cluster that takes no token of ours."""
        meta = raycluster.get("metadata") or {}
        name = str(meta.get("name", ""))
        head = (raycluster.get("spec") or {}).get("headGroupSpec") or {}
        status_head = (raycluster.get("status") or {}).get("head") or {}
        port = int((head.get("rayStartParams") or {}).get("dashboard-port") or names.DASHBOARD_PORT)
        return cls(
            namespace=str(meta.get("namespace") or namespace),
            name=name,
            uid=str(meta.get("uid", "")),
            service=str(status_head.get("serviceName") or _named(head) or names.head_service(name)),
            port_name=_port_name(head, port=port),
            port=port,
            secret=_secret(raycluster, name=name),
        )


@dataclass
class _Open:
    connection: Connection
    good_until_s: float = _FOREVER
    forward: PortForward | None = None
    uid: str = ""


_Key = tuple[str, str, str, str, str, str | None]
_lock = threading.Lock()
_locks: dict[_Key, threading.Lock] = {}
_opened: dict[_Key, _Open] = {}


def open_route(kube: Kube, raycluster: Raw, access: Access | None = None) -> Connection:
    """A connection that mends itself: fresh credentials, a new token, a new head pod.

    Found once a cluster and process, then remembered. Raises ClusterUnreachableError with what
    each way says when none works, KubeError, and MissingDependencyError.
    """
    access = access or Access()
    target = Target.of(raycluster, namespace=kube.namespace)
    key = (kube.server, kube.context, target.namespace, target.name, *_asked(access))
    with _lock:
        own_lock = _locks.setdefault(key, threading.Lock())
    with own_lock:
        known = _opened.get(key)
        if known is not None and known.uid != target.uid:
            _drop(key)  # Another cluster of that name, with another token.
            known = None
        if known is None or time.monotonic() > known.good_until_s:
            known = _find(kube, target, access, forward=known.forward if known else None)
            known.uid = target.uid
            _opened[key] = known
        return known.connection


def _drop(key: _Key) -> None:
    gone = _opened.pop(key, None)
    if gone is not None and gone.forward is not None:
        gone.forward.close()


def close_routes() -> None:
    """Port-forwards of this process, as at the end of a test."""
    with _lock:
        opened = list(_opened.values())
        _opened.clear()
        _locks.clear()
    for one in opened:
        if one.forward is not None:
            one.forward.close()


def _asked(access: Access) -> tuple[str, str | None]:
    return access.way, access.url


def _find(kube: Kube, target: Target, access: Access, *, forward: PortForward | None) -> _Open:
    way = _Ways(kube, target, access, forward)
    made: dict[str, Callable[[], _Open]] = {
        "in-cluster": way.in_cluster,
        "service-proxy": way.service_proxy,
        "port-forward": way.port_forward,
        "url": way.url,
    }
    if access.way != "auto":
        return made[access.way]()
    return way.best()


class _Ways:
    """All that lead to one dashboard."""

    def __init__(
        self, kube: Kube, target: Target, access: Access, forward: PortForward | None
    ) -> None:
        self._kube = kube
        self._target = target
        self._access = access
        self._forward = forward
        self._token: RayToken | None = None
        if target.secret is not None:
            path = secrets_path(target.namespace, target.secret)
            self._token = RayToken(kube, path=path, key=names.TOKEN_KEY)

    def best(self) -> _Open:
        """The first that works, each asked once."""
        told: list[str] = []
        good_until_s = _FOREVER
        for name, make in self._candidates():
            try:
                found = make()
                _probe(found.connection)
            except (GatewayRefusal, GatewayBusy) as error:
                told.append(f"{name}: {error}")
                if isinstance(error, GatewayBusy):
                    good_until_s = time.monotonic() + SECOND_CHOICE_S
            except (ClusterUnreachableError, MissingDependencyError) as error:
                told.append(f"{name}: {error.message}")
            else:
                found.good_until_s = good_until_s
                return found
        raise ClusterUnreachableError(
            f"No way leads to the dashboard of RayCluster {self._target.name} in namespace"
            f" {self._target.namespace}: {'; '.join(told)}",
            remedy="the head pod may still be starting (`llmops status`); else allow"
            " services/proxy (get, create, update, delete), or set `access` in the template",
        )

    def _candidates(self) -> Iterator[tuple[str, Callable[[], _Open]]]:
        target = self._target
        if is_inside(self._kube) and resolves(
            service_host(target.service, namespace=target.namespace)
        ):
            yield "inside the cluster", self.in_cluster
        yield "service proxy", self.service_proxy
        yield "port-forward", self.port_forward
        if self._access.url:
            yield self._access.url, self.url

    def in_cluster(self) -> _Open:
        host = service_host(self._target.service, namespace=self._target.namespace)
        return self._made(f"http://{host}:{self._target.port}", how="the cluster's own network")

    def service_proxy(self) -> _Open:
        target = self._target
        path = service_proxy_path(target.namespace, target.service, target.port_name)
        return self._made(
            f"{self._kube.server}{path}",
            how=f"the service proxy of context {self._kube.context}",
            is_proxied=True,
        )

    def port_forward(self) -> _Open:
        forward = self._forward or PortForward(
            self._kube,
            namespace=self._target.namespace,
            pod=self._head_pod,
            port=self._target.port,
        )
        how = f"a port-forward of context {self._kube.context}"
        found = self._made(forward.url, how=how)
        found.forward = forward
        return found

    def url(self) -> _Open:
        if self._access.url is None:
            raise ClusterUnreachableError(
                "access.way is `url`, and there is no access.url",
                remedy="put the address of the Ingress or Route into the cluster template",
            )
        return self._made(self._access.url.rstrip("/"), how="the address in its template")

    def _made(self, url: str, *, how: str, is_proxied: bool = False) -> _Open:
        route = DashboardRoute(self._kube, token=self._token, how=how, is_proxied=is_proxied)
        token = self._token.value() if self._token else None
        return _Open(Connection(dashboard_url=url, token=token, route=route))

    def _head_pod(self) -> str:
        """Raises KubeError, ClusterUnreachableError."""
        selector = f"{names.RAY_CLUSTER_LABEL}={self._target.name},{names.RAY_NODE_TYPE_LABEL}=head"
        pods, _ = self._kube.list(pods_path(self._target.namespace), label_selector=selector)
        for pod in pods:
            is_leaving = "deletionTimestamp" in pod["metadata"]
            if (pod.get("status") or {}).get("phase") == "Running" and not is_leaving:
                return str(pod["metadata"]["name"])
        raise ClusterUnreachableError(
            f"RayCluster {self._target.name} has no running head pod",
            remedy="`llmops status` tells what it waits for",
        )


def _probe(connection: Connection) -> None:
    """Any answer of Ray's will do. Raises ClusterUnreachableError, GatewayRefusal, GatewayBusy."""
    import httpx

    from llmops_kernel.clusters.http import open_http

    try:
        with open_http(connection, timeout=PROBE_S) as http:
            answer = http.get("/api/version")
    except (GatewayRefusal, GatewayBusy):
        raise
    except httpx.HTTPError as error:
        raise _no_answer(connection, str(error) or type(error).__name__) from error
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or answer.status_code == 404:
        raise _no_answer(connection, f"status {answer.status_code}")


def _no_answer(connection: Connection, why: str) -> ClusterUnreachableError:
    return ClusterUnreachableError(f"no answer at {connection.dashboard_url} ({why})")


def _named(head: Raw) -> str | None:
    meta = (head.get("headService") or {}).get("metadata") or {}
    return meta.get("name")


def _port_name(head: Raw, *, port: int) -> str:
    """Of the head's dashboard port: the service takes its names from the container."""
    spec = (head.get("template") or {}).get("spec") or {}
    containers = spec.get("containers") or [{}]
    ports = containers[0].get("ports") or []
    found = {str(one.get("name")): one.get("containerPort") for one in ports}
    if names.DASHBOARD_PORT_NAME in found:
        return names.DASHBOARD_PORT_NAME
    return next((name for name, number in found.items() if number == port), None) or (
        names.DASHBOARD_PORT_NAME
    )


def _secret(raycluster: Raw, *, name: str) -> str | None:
    options = (raycluster.get("spec") or {}).get("authOptions") or {}
    if options.get("enableK8sTokenAuth"):
        raise ClusterUnreachableError(
            f"RayCluster {name} takes Kubernetes credentials in place of Ray's token, and ours"
            " are shown to nobody but the API server",
            remedy="set authOptions.mode: token without enableK8sTokenAuth",
        )
    if options.get("mode") == "token":
        return str(options.get("secretName") or names.token_secret(name))
    return _named_in_pod(raycluster)


def _named_in_pod(raycluster: Raw) -> str | None:
    """Where the CRD knows no authentication, the head's own variables turn it on."""
    pod = dig(raycluster, "spec", "headGroupSpec", "template", "spec")
    for variable in objects(next(iter(objects(pod, "containers")), {}), "env"):
        if variable.get("name") == "RAY_AUTH_TOKEN":
            reference = fields(variable, "valueFrom", "secretKeyRef")
            if reference.get("key") == names.TOKEN_KEY:
                return text(reference, "name") or None
    return None
