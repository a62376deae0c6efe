"""Port-forward through the Kubernetes API server: a loopback address that reaches a pod's port."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx

from llmops_kernel.errors import ClusterUnreachableError, MissingDependencyError
from llmops_kernel.providers.kuberay.api.errors import KubeError
from llmops_kernel.providers.kuberay.api.paths import portforward_path

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from llmops_kernel.providers.kuberay.api.client import Kube


CHUNK_BYTES: Final = 1 << 16
LOOK_S: Final = 0.5
_OPEN_S: Final = 10.0
_TRIES: Final = 3
_log = logging.getLogger(__name__)


class PortForward:
    """Opens one websocket per connection to its address, so nothing has to be reconnected.

    Only processes of this user are accepted. `pod` names the pod; it is called again when that pod
    is gone. Thread-safe.
    """

    def __init__(self, kube: Kube, *, namespace: str, pod: Callable[[], str], port: int) -> None:
        _require_websockets()
        self._kube = kube
        self._namespace = namespace
        self._find_pod = pod
        self._pod: str | None = None
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = run_in_loop(asyncio.start_server(self._begin, "127.0.0.1", 0))
        self.local_port: int = self._server.sockets[0].getsockname()[1]
        self.last_error = ""
        """Why the newest connection failed; empty if it succeeded."""
        self._begun = self._reported = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.local_port}"

    def close(self) -> None:
        run_in_loop(self._close(), timeout_s=_OPEN_S)

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._begun += 1
        task = asyncio.ensure_future(self._accept(reader, writer, number=self._begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report(self, number: int, error: str) -> None:
        """An older connection that fails late does not hide what a newer one has found."""
        if number >= self._reported:
            self._reported, self.last_error = number, error

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, number: int
    ) -> None:
        try:
            if await asyncio.to_thread(is_ours, *_ends(writer)):
                await self._serve(reader, writer, number=number)
            else:
                _log.warning("port-forward: refused a connection of another user")
        except (OSError, KubeError, ClusterUnreachableError, _errors()) as error:
            reason = str(error) or type(error).__name__
            self._report(number, reason)
            _log.debug("port-forward: %s", reason)
            _reset(writer)
        finally:
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, number: int
    ) -> None:
        remote = await self._dial()
        self._report(number, "")
        try:
            channels = Channels(remote)
            up = asyncio.ensure_future(_pump_up(reader, remote))
            down = asyncio.ensure_future(_pump_down(channels, writer))
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                while not down.done() and not up.exception():
                    # The client sends no more; only the kernel knows whether it still reads.
                    await asyncio.wait({down}, timeout=LOOK_S)
                    if not await asyncio.to_thread(is_there, *_ends(writer)):
                        break
                for one in (up, down):
                    if one.done():
                        one.result()
            finally:
                up.cancel()
                down.cancel()
        finally:
            with suppress(Exception):
                await remote.close()

    async def _dial(self) -> ClientConnection:
        """Connect to the pod.

        Raises what websockets raises, `OSError`, KubeError, ClusterUnreachableError.
        """
        from websockets.exceptions import InvalidStatus

        for last in (False,) * (_TRIES - 1) + (True,):
            pod = self._pod
            if pod is None:
                pod = await asyncio.to_thread(self._find_pod)
            try:
                connection = await self._open(pod)
            except InvalidStatus as error:
                self._pod = None
                if last or error.response.status_code not in (404, 500, 502, 503):
                    raise _refused(pod, error.response) from error
                await asyncio.sleep(0.2)
            else:
                self._pod = pod
                return connection
        raise AssertionError("unreachable")

    async def _open(self, pod: str) -> ClientConnection:
        """Open the websocket with current credentials, renewed once after a 401."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus

        path = f"{portforward_path(self._namespace, pod)}?ports={self._port}"
        url = f"{self._kube.server}{path}"
        flow = self._kube.auth().async_auth_flow(httpx.Request("GET", url))
        request = await anext(flow)
        while True:
            try:
                return await connect(
                    "ws" + url.removeprefix("http"),
                    subprotocols=PROTOCOLS,
                    additional_headers=_own_headers(request),
                    user_agent_header="llmops-kernel",
                    compression=None,
                    max_size=None,
                    open_timeout=_OPEN_S,
                    close_timeout=2,
                    proxy=self._kube.proxy,
                    **self._tls(url),
                )
            except InvalidStatus as error:
                try:
                    request = await flow.asend(_as_httpx(error.response, request))
                except StopAsyncIteration:
                    raise error from None

    def _tls(self, url: str) -> dict[str, Any]:
        if not url.startswith("https:"):
            return {}
        context: ssl.SSLContext = self._kube.verify()
        name = self._kube.server_name
        return {"ssl": context, **({"server_hostname": name} if name else {})}


def _ends(writer: asyncio.StreamWriter) -> tuple[Address, Address]:
    return writer.get_extra_info("peername"), writer.get_extra_info("sockname")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection instead of closing it: half an answer must not look complete."""
    with suppress(OSError):
        at_once = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()


async def _pump_up(reader: asyncio.StreamReader, remote: ClientConnection) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await remote.send(bytes([DATA]) + data)
    if remote.subprotocol == V5:
        await remote.send(bytes([CLOSE, DATA]))


async def _pump_down(channels: Channels, writer: asyncio.StreamWriter) -> None:
    async for data in channels:
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


def _own_headers(request: httpx.Request) -> dict[str, str]:
    value = request.headers.get("Authorization")
    return {"Authorization": value} if value else {}


def _as_httpx(answer: Any, request: httpx.Request) -> httpx.Response:
    return httpx.Response(answer.status_code, content=answer.body or b"", request=request)


def _refused(pod: str, answer: Any) -> ClusterUnreachableError:
    said = (answer.body or b"").decode(errors="replace").strip()[:300]
    return ClusterUnreachableError(
        f"The Kubernetes API server does not forward to pod {pod}:"
        f" {answer.status_code} {said or answer.reason_phrase}",
        remedy="port-forward needs `get` and `create` on pods/portforward"
        if answer.status_code == httpx.codes.FORBIDDEN
        else "`llmops status` shows the cluster's state",
    )


def _errors() -> type[Exception]:
    from websockets.exceptions import WebSocketException

    return WebSocketException


def _require_websockets() -> None:
    try:
        import websockets  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "Port-forward to a pod needs the package `websockets`, which is not installed",
            remedy="pip install 'llmops-kernel[kubernetes]'",
        ) from None


# --- Kubernetes' channels in one websocket for port-forward: one for data, one for errors ---


DATA: Final = 0
ERROR: Final = 1
CLOSE: Final = 255
"""Version 5 only: the next byte names the channel that ends."""
V5: Final = "v5.channel.k8s.io"
PROTOCOLS: Final[Any] = [V5, "v4.channel.k8s.io"]
_PORT_BYTES: Final = 2


class ChannelError(OSError):
    """The pod's node could not reach the port."""


class Channels:
    """The bytes of the data channel, until it ends. Raises ChannelError."""

    def __init__(self, remote: ClientConnection) -> None:
        self._remote = remote
        # Each channel begins with the number of its port.
        self._to_skip = {DATA: _PORT_BYTES, ERROR: _PORT_BYTES}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes.

        Ends with the data channel, or with a connection that was closed properly.
        """
        async for message in self._remote:
            frame = message.encode() if isinstance(message, str) else message
            if not frame:
                continue
            channel, data = frame[0], frame[1:]
            if channel == CLOSE:
                if data[:1] == bytes([DATA]):
                    return
                continue
            skipped = min(self._to_skip.get(channel, 0), len(data))
            if skipped:
                self._to_skip[channel] -= skipped
                data = data[skipped:]
            if channel == ERROR and data:
                raise ChannelError(data.decode(errors="replace").strip())
            if channel == DATA and data:
                yield data


# --- Who owns the process at the other end of a loopback connection ---


_TABLE: Final = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
Address = tuple[str, int]


def is_ours(peer: Address, own: Address) -> bool:
    """Return whether the process that connected from `peer` to `own` belongs to this user.

    A listener on the loopback device is open to every user of the host. False if the owner is
    unknown.
    """
    row = _row(peer, own)
    return row is not None and int(row[_UID]) == os.getuid()


def is_there(peer: Address, own: Address) -> bool:
    """Return False once the other process has closed its socket, not only its sending side."""
    row = _row(peer, own)
    return row is not None and row[_INODE] != "0"


def _row(peer: Address, own: Address) -> list[str] | None:
    """Return the kernel's row for the socket whose own address is `peer`."""
    try:
        rows = _TABLE.read_text().splitlines()[1:]
    except OSError:
        return None
    wanted = [_spelled(peer), _spelled(own)]
    cells = (row.split() for row in rows)
    return next((row for row in cells if [row[_LOCAL], row[_REMOTE]] == wanted), None)


def _spelled(address: Address) -> str:
    """Return the address as the kernel writes it: a number in the machine's byte order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


# --- The one event loop of this process's tunnels, in a thread of its own that ends with it ---


T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def tunnel_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started when first needed; a forked child gets its own."""
    with _lock:
        pid = os.getpid()
        if pid not in _loops:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="llmops-tunnel", daemon=True)
            thread.start()
            _loops.clear()
            _loops[pid] = loop
        return _loops[pid]


def run_in_loop(work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
    """Run the coroutine in the loop and wait for it from another thread."""
    return asyncio.run_coroutine_threadsafe(work, tunnel_loop()).result(timeout_s)
