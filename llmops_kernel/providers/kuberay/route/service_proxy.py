"""A dashboard behind a Kubernetes API server: two credentials, each sent only to its own server."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.kuberay.api.errors import KubeDenied
from llmops_kernel.providers.kuberay.api.kubeconfig import is_in_cluster
from llmops_kernel.providers.kuberay.api.paths import IN_CLUSTER
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    dig,
    fields,
    labels,
    objects,
    one_line,
    text,
)

if TYPE_CHECKING:
    from llmops_kernel.providers.kuberay.api.client import Kube
    from llmops_kernel.providers.kuberay.resource.objects import Obj


TOKEN_HEADER: Final = "X-Ray-Authorization"
REREAD_PAUSE_S: Final = 2.0
_REFUSED: Final = frozenset({401, 403})
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
# Not asyncio's own threads: those also look up host names, for the whole Jupyter server.
_WAITING: Final = ThreadPoolExecutor(8, thread_name_prefix="llmops-token")


class GatewayRefusal(httpx.TransportError):
    """The API server in front of Ray answered instead of Ray, and a retry will not help."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class GatewayBusy(httpx.NetworkError):
    """The API server in front of Ray answered instead of Ray: it cannot reach Ray now."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class RayToken:
    """Ray's token from the Secret. Thread-safe.

    `require` raises ClusterUnreachableError for a Secret that is not the cluster's.
    """

    def __init__(self, kube: Kube, *, path: str, key: str, require: Callable[[Obj], None]) -> None:
        self._kube = kube
        self._require = require
        self._path = path
        self._key = key
        self._lock = threading.Lock()
        self._read_s = 0.0
        self._value: str | None = None

    def __repr__(self) -> str:
        return f"RayToken({self._path!r})"

    def value(self) -> str:
        """Return the token. Raises KubeError, ClusterUnreachableError."""
        with self._lock:
            return self._value or self._read()

    def renewed(self, rejected: str) -> str:
        """Return the Secret's new token if it has one, for example after the head was recreated."""
        with self._lock:
            # A head that is only starting rejects tokens; that must not cause polling of the
            # Secret.
            if self._value == rejected and time.monotonic() - self._read_s > REREAD_PAUSE_S:
                self._read()
            return self._value or rejected

    def _read(self) -> str:
        self._read_s = time.monotonic()
        secret = self._kube.get(self._path)
        self._require(secret)
        data = secret.get("data") or {}
        self._value = base64.b64decode(data.get(self._key, "")).decode().strip()
        return self._value


class DashboardRoute:
    """Implements `Route`; `is_proxied` if requests go through the API server."""

    def __init__(
        self, kube: Kube, *, token: RayToken | None, description: str, is_proxied: bool = False
    ) -> None:
        self._kube = kube
        self._token = token
        self._how = description
        self._is_proxied = is_proxied

    def __repr__(self) -> str:
        return f"DashboardRoute({self._how!r})"

    def auth(self) -> httpx.Auth:
        gate = self._kube.auth() if self._is_proxied else None
        return RouteAuth(gate, gate_url=self._kube.server, token=self._token, kube=self._kube)

    def verify(self) -> Any:
        return self._kube.verify() if self._is_proxied else True

    def proxy(self) -> str | None:
        return self._kube.proxy if self._is_proxied else None

    def describe(self) -> str:
        return self._how


class RouteAuth(httpx.Auth):
    """Sends the API server's credentials only to it, and Ray's token in a separate header.

    Raises GatewayRefusal and GatewayBusy for answers that are not Ray's, so that a missing Service
    is not mistaken for a missing job.
    """

    def __init__(
        self,
        gate: httpx.Auth | None,
        *,
        gate_url: str,
        token: RayToken | None,
        kube: Kube | None = None,
    ) -> None:
        self._gate = gate
        self._kube = kube
        self._origin = _origin(httpx.URL(gate_url))
        self._token = token

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        token = self._token.value() if self._token else None
        self._set(request, token)
        response = yield from self._through_gate(request)
        if self._token and token and _asks_for_another_token(request, response):
            renewed = self._token.renewed(token)
            if renewed != token:
                self._set(request, renewed)
                yield from self._through_gate(request)

    def _through_gate(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, httpx.Response]:
        flow = self._gate_for(request).sync_auth_flow(request)
        try:
            outgoing = next(flow)
            while True:
                response = yield outgoing
                outgoing = flow.send(response)
        except StopIteration:
            pass
        if _may_be_status(response):
            response.read()
            _raise_for_gate(response, request, self._kube)
        return response

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        # Secrets and credential plug-ins may take a second: do not read them on the event loop.
        wait = asyncio.get_running_loop().run_in_executor
        token = await wait(_WAITING, self._token.value) if self._token else None
        for is_second in (False, True):
            self._set(request, token)
            flow = self._gate_for(request).async_auth_flow(request)
            try:
                outgoing = await anext(flow)
                while True:
                    response = yield outgoing
                    outgoing = await flow.asend(response)
            except StopAsyncIteration:
                pass
            if _may_be_status(response):
                await response.aread()
                _raise_for_gate(response, request, self._kube)
            rejected = token
            if is_second or not rejected or not _asks_for_another_token(request, response):
                return
            assert self._token is not None
            token = await wait(_WAITING, self._token.renewed, rejected)
            if token == rejected:
                return

    def _gate_for(self, request: httpx.Request) -> httpx.Auth:
        if self._gate is None or _origin(request.url) != self._origin:
            return httpx.Auth()  # Other servers never get the API server's credentials.
        return self._gate

    def _set(self, request: httpx.Request, token: str | None) -> None:
        if token:
            request.headers[TOKEN_HEADER] = f"Bearer {token}"


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    port = url.port or {"https": 443, "http": 80}.get(url.scheme)
    return url.scheme, url.host, port


def _asks_for_another_token(request: httpx.Request, response: httpx.Response) -> bool:
    # A streamed body was read already and cannot be sent again.
    return response.status_code in _REFUSED and isinstance(request.stream, httpx.ByteStream)


def _may_be_status(response: httpx.Response) -> bool:
    kind = response.headers.get("Content-Type", "")
    return response.is_error and kind.startswith("application/json")


def _raise_for_gate(response: httpx.Response, request: httpx.Request, kube: Kube | None) -> None:
    """Raise if the API server answered: of the two, only Kubernetes sends a Status object.

    KubeDenied names the right that is missing, or how to sign in again.
    """
    try:
        status = response.json()
    except ValueError:
        return
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return
    code = response.status_code
    if kube is not None and code in _REFUSED:
        error = kube.refusal(code, status, method=request.method, path=request.url.path)
        if isinstance(error, KubeDenied):
            raise error
    reason = status.get("message") or status.get("reason")
    message = f"the Kubernetes API server answered {code}: {reason}"
    raise (GatewayBusy if code in _BUSY else GatewayRefusal)(message, code=code)


# --- The Secret of Ray's token ---
# Which Secret has a cluster's token: one that says so itself, not any that the RayCluster names.
#
# Whoever may change a RayCluster chooses the Secret's name and the head that gets its content,
# and may be somebody who cannot read Secrets.


Raw = Mapping[str, Any]
_SHOWN: Final = 253


@dataclass(frozen=True)
class TokenSecret:
    """The name that a RayCluster gives, and what the Secret of that name must say."""

    name: str
    cluster: str
    uid: str
    own_name: str = ""
    """The name in this user's own template of the cluster, which needs no further proof."""

    def require(self, secret: Obj) -> None:
        """Raise ClusterUnreachableError if the Secret is not this cluster's."""
        if self.name == self.own_name or self._is_named_by(secret):
            return
        namespace = text(secret, "metadata", "namespace")
        secret_name = one_line(self.name, limit=_SHOWN)
        raise ClusterUnreachableError(
            f"RayCluster {self.cluster} names Secret {secret_name} for Ray's token, but that Secret"
            f" does not belong to the cluster: the RayCluster does not own it, and its label"
            f" {names.RAY_CLUSTER_LABEL} is not {self.cluster}. Nothing of it was sent",
            remedy=f"if the Secret is for this cluster: `kubectl -n {namespace} label secret"
            f" {secret_name} {names.RAY_CLUSTER_LABEL}={self.cluster}`, or set"
            " raycluster.authOptions.secretName in your own template of the cluster, and run"
            " `llmops up` with it; else ask who changed the RayCluster",
        )

    def _is_named_by(self, secret: Obj) -> bool:
        owners = objects(secret, "metadata", "ownerReferences")
        if self.uid and any(text(owner, "uid") == self.uid for owner in owners):
            return True
        # KubeRay sets it on the Secrets that it makes; whoever may set it may read the Secret.
        secret_labels = labels(secret, "metadata", "labels")
        return secret_labels.get(names.RAY_CLUSTER_LABEL) == self.cluster


def token_secret_of(raycluster: Raw, *, name: str, own_name: str = "") -> TokenSecret | None:
    """Return the Secret with Ray's token; None if the cluster requires none.

    Raises ClusterUnreachableError for a cluster that accepts no token of ours.
    """
    secret_name = _name(raycluster, cluster=name)
    if secret_name is None:
        return None
    return TokenSecret(secret_name, name, text(raycluster, "metadata", "uid"), own_name)


def _name(raycluster: Raw, *, cluster: str) -> str | None:
    options = (raycluster.get("spec") or {}).get("authOptions") or {}
    if options.get("enableK8sTokenAuth"):
        raise ClusterUnreachableError(
            f"RayCluster {cluster} expects Kubernetes credentials instead of Ray's token, and"
            f" llmops sends Kubernetes credentials to the API server only",
            remedy="set authOptions.mode: token without enableK8sTokenAuth",
        )
    if options.get("mode") == "token":
        return str(options.get("secretName") or names.token_secret(cluster))
    return _name_in_pod(raycluster)


def _name_in_pod(raycluster: Raw) -> str | None:
    """Return the Secret in the head's variables: a CRD without authentication needs them."""
    pod = dig(raycluster, "spec", "headGroupSpec", "template", "spec")
    for variable in objects(next(iter(objects(pod, "containers")), {}), "env"):
        if variable.get("name") == "RAY_AUTH_TOKEN":
            reference = fields(variable, "valueFrom", "secretKeyRef")
            if reference.get("key") == names.TOKEN_KEY:
                return text(reference, "name") or None
    return None


# --- Detection of a process inside the Kubernetes cluster of a context ---


_OWN_NAMES: Final = frozenset(
    {"kubernetes", "kubernetes.default", "kubernetes.default.svc"}
    | {"kubernetes.default.svc.cluster.local"}
)


def is_inside(kube: Kube) -> bool:
    """Compare the API server's address: another cluster may have a Service of the same name."""
    if not is_in_cluster():
        return False
    if kube.context == IN_CLUSTER:
        return True
    host = urlsplit(kube.server).hostname
    return host in _OWN_NAMES or host == os.environ.get("KUBERNETES_SERVICE_HOST")


def service_host(service: str, *, namespace: str) -> str:
    return f"{service}.{namespace}.svc"


def resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False
