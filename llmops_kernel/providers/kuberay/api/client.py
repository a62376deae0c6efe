"""Client for one Kubernetes API server as one user: plain dicts over HTTP, readable errors."""

from __future__ import annotations

import itertools
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx

from llmops_kernel.providers.kuberay.api import kubeconfig
from llmops_kernel.providers.kuberay.api.clock import RoundTrip, ServerClock, event_hooks, pause_s
from llmops_kernel.providers.kuberay.api.credentials import Credentials, KubeAuth
from llmops_kernel.providers.kuberay.api.errors import (
    KubeError,
    KubeGone,
    KubeUnreachable,
    error_of,
    unreachable,
)
from llmops_kernel.providers.kuberay.api.paths import selectors, write_params
from llmops_kernel.providers.kuberay.resource.names import FIELD_MANAGER

__all__ = [
    "FIELD_MANAGER",
    "Kube",
    "KubeError",
    "KubeGone",
    "KubeUnreachable",
    "Watch",
    "open_kube",
]

_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_TRIES: Final = 4
_AWAY: Final = frozenset({502, 503, 504})
_AWAY_S: Final = 0.1
_PAGE: Final = 500
_TIMEOUT: Final = httpx.Timeout(15.0, connect=5.0)
_WATCH_SLACK_S: Final = 15.0
# A watch is silent for minutes: keep-alive lets the kernel notice that the other side is gone.
_KEEP_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]


class Kube:
    """Thread-safe. Raises KubeError for every failure."""

    def __init__(self, context: str | None = None) -> None:
        """Use the current context, or the pod's own service account where there is no kubeconfig.

        Raises KubeError, MissingDependencyError.
        """
        settings = kubeconfig.context_named(context)
        self.key = next(_keys)
        """Of this client alone, in this process."""
        self.is_replaced = False
        """Whether a newer client of this context is in use: nothing new starts with this one."""
        self.context = settings.name
        self.namespace = settings.namespace
        """The context's default namespace."""
        self._credentials = Credentials(settings)
        self.server = self._credentials.server
        """`https://host:port[/path]`"""
        self.proxy = self._credentials.proxy
        self._shared = self._transport()
        self.clock, self.round_trip = ServerClock(), RoundTrip()
        self._http = httpx.Client(
            base_url=self.server,
            auth=self.auth(),
            headers={"User-Agent": "llmops-kernel", "Accept": "application/json"},
            timeout=_TIMEOUT,
            transport=self._shared,
            trust_env=False,
            event_hooks=event_hooks(self.clock, self.round_trip),
        )

    def __repr__(self) -> str:
        return f"Kube({self.context!r})"

    @property
    def server_name(self) -> str | None:
        """Return the name in the server's certificate, if it differs from that of its address."""
        return self._credentials.server_name

    def auth(self) -> httpx.Auth:
        """Set current credentials on each request, sync and async; renew them once after a 401."""
        return KubeAuth(self._credentials)

    def verify(self) -> ssl.SSLContext:
        """Return the authority and the client certificate; a renewed certificate appears in it."""
        return self._credentials.ssl

    def waits_for(self) -> KubeUnreachable | None:
        """Return what to report while requests wait for a credential plug-in, else None."""
        return self._credentials.waits_for()

    def refusal(self, code: int, body: Mapping[str, Any], *, method: str, path: str) -> KubeError:
        """Return the error for a Status object that another client of this server received."""
        sign_in = self._credentials.sign_in
        return error_of(code, body, method=method, path=path, context=self.context, sign_in=sign_in)

    def transport(self) -> httpx.BaseTransport:
        """Return the connections for another client; closing that client keeps them open."""
        return _SharedTransport(self._shared)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, **params: str | int) -> dict[str, Any]:
        return self._json("GET", path, params=params)

    def text(self, path: str, **params: str | int) -> str:
        """Return an answer that is not JSON, such as a pod's log."""
        return self._request("GET", path, params=params).text

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", limit: int = _PAGE
    ) -> tuple[list[dict[str, Any]], str]:
        """Return all pages, and the resourceVersion from which a watch continues."""
        params: dict[str, str | int] = {
            **selectors(label_selector, field_selector),
            "limit": limit,
        }
        items: list[dict[str, Any]] = []
        restarted = False
        while True:
            try:
                page = self._json("GET", path, params=params)
            except KubeGone:
                # The pages took longer than the server keeps a version: list all of them again,
                # once.
                if restarted:
                    raise
                restarted, items = True, []
                params.pop("continue", None)
                continue
            items += page.get("items") or []
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return items, str(meta.get("resourceVersion", ""))
            params["continue"] = meta["continue"]

    def create(
        self, path: str, body: Mapping[str, Any], *, dry_run: bool = False, strict: bool = True
    ) -> dict[str, Any]:
        """Create an object; `strict` rejects unknown fields instead of dropping them silently."""
        params = write_params(dry_run=dry_run, strict=strict)
        return self._json("POST", path, params=params, body=body)

    def apply(
        self, path: str, body: Mapping[str, Any], *, force: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        """Apply server-side as `llmops`; fields of others are taken over only with `force`."""
        params = write_params(dry_run=dry_run, strict=True)
        params["force"] = "true" if force else "false"
        return self._json("PATCH", path, params=params, body=body, content_type=_APPLY)

    def merge(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a merge patch; None removes a field."""
        params = write_params(dry_run=False, strict=False)
        return self._json("PATCH", path, params=params, body=patch, content_type=_MERGE)

    def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> dict[str, Any]:
        """Delete an object; not one of that name that was created or changed since, if given."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        values = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {name: value for name, value in values.items() if value is not None}:
            body["preconditions"] = preconditions
        return self._json("DELETE", path, body=body)

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 240.0,
    ) -> Watch:
        """Yield (type, object), bookmarks included, until the server ends the watch.

        Raises KubeGone when the objects must be listed again, and KubeError.
        """
        params = selectors(label_selector, field_selector) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_s)),
        }
        timeout = httpx.Timeout(15.0, connect=5.0, read=timeout_s + _WATCH_SLACK_S)
        request = self._http.build_request("GET", path, params=params, timeout=timeout)
        return Watch(self, self._send(request, stream=True), path=path)

    def _transport(self) -> httpx.HTTPTransport:
        return httpx.HTTPTransport(
            verify=self.verify(),
            proxy=httpx.Proxy(self.proxy) if self.proxy else None,
            socket_options=_KEEP_ALIVE,
            limits=httpx.Limits(max_connections=64, keepalive_expiry=30.0),
        )

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        answer = self._request(method, path, params=params, body=body, content_type=content_type)
        try:
            body_read: dict[str, Any] = answer.json()
        except ValueError:
            raise KubeUnreachable(
                f"{self.server} is not a Kubernetes API server: it answered {answer.text[:80]!r}",
                remedy=f"check `server` of the cluster in kubeconfig context {self.context}",
            ) from None
        return body_read

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> httpx.Response:
        headers = {"Content-Type": content_type} if body is not None else {}
        content = None if body is None else json.dumps(body)
        for number in range(_TRIES):
            last = number == _TRIES - 1
            request = self._http.build_request(
                method, path, params=params, headers=headers, content=content
            )
            try:
                answer = self._send(request)
            except KubeUnreachable as error:
                # What may have been done already is not done twice.
                if last or (error.reason != "Refused" and method == "POST"):
                    raise
                time.sleep(0.1 * 2 ** random.uniform(0, 2))
                continue
            is_busy = method == "GET" and answer.status_code in _AWAY
            if last or not (is_busy or answer.status_code == httpx.codes.TOO_MANY_REQUESTS):
                return self._checked(answer, method=method, path=path)
            # Behind a load balancer the next server may answer at once.
            time.sleep(min(pause_s(answer), _AWAY_S * 2**number) if is_busy else pause_s(answer))
        raise AssertionError("unreachable")

    def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        try:
            return self._http.send(request, stream=stream)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _checked(self, answer: httpx.Response, *, method: str, path: str) -> httpx.Response:
        if answer.is_success:
            return answer
        body: Any = answer.text
        with suppress(ValueError):
            body = answer.json()
        raise error_of(
            answer.status_code,
            body,
            method=method,
            path=path,
            context=self.context,
            sign_in=self._credentials.sign_in,
        )

    def _unreachable(self, error: httpx.HTTPError) -> KubeUnreachable:
        return unreachable(error, context=self.context, server=self.server, read_s=_TIMEOUT.read)


class _SharedTransport(httpx.BaseTransport):
    def __init__(self, transport: httpx.HTTPTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._transport.handle_request(request)


class Watch:
    """Iterate in one thread; `close` from any thread ends it."""

    def __init__(self, kube: Kube, response: httpx.Response, *, path: str) -> None:
        self._response = response
        self._closed = threading.Event()
        if not response.is_success:
            with suppress(httpx.HTTPError):
                response.read()
            response.close()
            kube._checked(response, method="GET", path=path)
        self._kube = kube
        self._events = self._read()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return self._events

    def __next__(self) -> tuple[str, dict[str, Any]]:
        return next(self._events)

    def close(self) -> None:
        """Wake the thread that waits for the next event."""
        self._closed.set()
        stream = self._response.extensions.get("network_stream")
        raw = stream.get_extra_info("socket") if stream is not None else None
        if raw is not None:
            with suppress(OSError):
                # Closing alone does not wake a thread that is blocked in `recv`.
                raw.shutdown(socket.SHUT_RDWR)

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        try:
            for line in self._response.iter_lines():
                if line:
                    yield _event(line)
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError) as error:
            if not self._closed.is_set():
                failure = (
                    error if isinstance(error, httpx.HTTPError) else httpx.ReadError(str(error))
                )
                raise self._kube._unreachable(failure) from None
        finally:
            self._response.close()


def _event(line: str) -> tuple[str, dict[str, Any]]:
    event = json.loads(line)
    kind, obj = str(event["type"]), event["object"]
    if kind != "ERROR":
        return kind, obj
    code, message = int(obj.get("code") or 500), str(obj.get("message", ""))
    if code == 410:
        raise KubeGone(message, code=410, reason="Expired")
    raise KubeUnreachable(message or "The watch ended with an error", code=code, reason="Watch")


_keys = itertools.count(1)
_kubes: dict[tuple[Any, ...], Kube] = {}
_kubes_lock = threading.Lock()


def open_kube(context: str | None = None) -> Kube:
    """Return one client per context and process; a new one when the kubeconfig files have changed.

    Raises KubeError, MissingDependencyError.
    """
    settings = kubeconfig.context_named(context)
    key = (settings, kubeconfig.read_kubeconfig().stamp)
    with _kubes_lock:
        if key not in _kubes:
            for old in [entry for entry in _kubes if entry[0].name == settings.name]:
                _kubes.pop(old).is_replaced = True
            _kubes[key] = Kube(settings.name)
        return _kubes[key]
