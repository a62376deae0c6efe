"""Port-forward: streams as they are, whatever happens to the pod, for this user's processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from websockets.asyncio.server import ServerConnection, serve

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.port_forward import (
    CLOSE,
    DATA,
    V5,
    ChannelError,
    Channels,
    PortForward,
    is_ours,
    tunnel_loop,
)
from llmops_kernel.providers.kuberay.route.tunnel import close_routes, open_route
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.head_objects import drop_head, put_cluster, put_head
from tests.providers.kuberay.route.tunnel_fixtures import kube
from tests.providers.kuberay.token_ray import TokenRay
from tests.waiting import until

__all__ = ["kube"]

FORWARD = Access(way="port-forward")


def connections_open() -> int:
    """How many connections the tunnels of this process serve now."""
    tasks = asyncio.all_tasks(tunnel_loop())
    return sum("_accept" in repr(task.get_coro()) for task in tasks)


class Echo:
    """Sends back what it gets, in order, on many connections at once."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._server.getsockname()[1]
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(65536):
                connection.sendall(data)
        self.ended += 1

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def forward(standin: StandIn, namespace: str, kube: Kube, echo: Echo) -> Iterator[PortForward]:
    put_head(standin, namespace, port=echo.port)
    made = PortForward(kube, namespace=namespace, pod=lambda: "lab-head", port=8265)
    yield made
    made.close()


def connect(forward: PortForward) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", forward.local_port))
    made.settimeout(30)
    return made


def is_cut(forward: PortForward) -> bool:
    """Reset, which nobody takes for an end."""
    with connect(forward) as line:
        try:
            line.sendall(b"hello")
            line.recv(10)
        except ConnectionError:
            return True
    return False


def exchange(forward: PortForward, size: int) -> bool:
    """Send so much random data and read it back."""
    data = secrets.token_bytes(size)
    with connect(forward) as line:

        def send() -> None:
            with contextlib.suppress(OSError):  # What did not arrive does not come back either.
                line.sendall(data)

        sender = threading.Thread(target=send)
        sender.start()
        back = hashlib.sha256()
        left = size
        while left:
            part = line.recv(min(left, 1 << 16))
            assert part, f"the stream ended {left} bytes early"
            back.update(part)
            left -= len(part)
        sender.join()
    return back.digest() == hashlib.sha256(data).digest()


def test_what_goes_in_comes_out_on_many_connections_at_once(forward: PortForward) -> None:
    with ThreadPoolExecutor(40) as pool:
        assert all(pool.map(lambda size: exchange(forward, size), [200_000] * 40))
    assert exchange(forward, 20_000_000)
    until(lambda: connections_open() == 0)


def test_who_leaves_leaves_nothing_behind(forward: PortForward, echo: Echo) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        assert exchange(forward, 1000)
    until(lambda: connections_open() == 0 and echo.ended == 30, timeout_s=60)
    assert len(os.listdir("/proc/self/fd")) <= before + 3


def test_a_pod_that_is_gone_is_looked_for_again(
    standin: StandIn, namespace: str, kube: Kube
) -> None:
    with TokenRay() as ray:
        connection = open_route(kube, put_cluster(standin, namespace, port=ray.port), FORWARD)
        with JobsClient(connection, cluster="lab") as client:
            client.version()
            drop_head(standin, namespace)
            client.close()
        with (
            JobsClient(connection, cluster="lab") as client,
            pytest.raises(ClusterUnreachableError, match="port-forward"),
        ):
            client.version()
        with JobsClient(connection, cluster="lab") as client:
            put_head(standin, namespace, port=ray.port, pod="lab-head-2")
            assert client.version()["session_name"] == "s"
    close_routes()


def test_an_api_server_that_comes_back_is_used_again(
    standin: StandIn, forward: PortForward
) -> None:
    assert exchange(forward, 1000)
    standin.fault("away", seconds=2)
    assert is_cut(forward)
    assert forward.last_error

    def works() -> bool:
        try:
            return exchange(forward, 1000)
        except (OSError, AssertionError):
            return False

    until(works)
    assert not forward.last_error


def test_an_older_connection_that_fails_late_hides_nothing(
    standin: StandIn, namespace: str, kube: Kube, echo: Echo
) -> None:
    put_head(standin, namespace, port=echo.port)
    asked, may_fail = threading.Event(), threading.Event()

    def find() -> str:
        if asked.is_set():
            return "lab-head"
        asked.set()
        may_fail.wait(60)
        raise ClusterUnreachableError("late")

    forward = PortForward(kube, namespace=namespace, pod=find, port=8265)
    try:
        with ThreadPoolExecutor(1) as pool:
            older = pool.submit(is_cut, forward)
            assert asked.wait(30)
            assert exchange(forward, 1000)
            may_fail.set()
            assert older.result(timeout=60)
        assert forward.last_error == ""
    finally:
        may_fail.set()
        forward.close()


def test_a_port_that_nobody_serves_is_a_reset_with_its_reason(
    standin: StandIn, namespace: str, forward: PortForward
) -> None:
    put_head(standin, namespace, port=1)
    assert is_cut(forward)
    until(lambda: "failed to connect" in forward.last_error)


def test_only_processes_of_this_user_get_through(forward: PortForward) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    script = (
        "import os, socket, sys; os.setuid(65534); line = socket.socket(); line.settimeout(20)\n"
        "try:\n"
        "  line.connect(('127.0.0.1', int(sys.argv[1]))); line.sendall(b'hello')\n"
        "  print(line.recv(10))\n"
        "except ConnectionError: print(b'')\n"
    )
    command = [sys.executable, "-c", script, str(forward.local_port)]
    reported = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert reported.strip() == "b''"
    assert exchange(forward, 10)


def test_an_unknown_peer_is_nobody_of_ours() -> None:
    assert not is_ours(("127.0.0.1", 1), ("127.0.0.1", 2))


def test_channels_drop_the_ports_and_raise_what_the_node_says() -> None:
    async def talk(frames: list[bytes]) -> list[bytes]:
        async def send(line: ServerConnection) -> None:
            for frame in frames:
                await line.send(frame)

        from websockets.asyncio.client import connect as dial

        async with serve(send, "127.0.0.1", 0, subprotocols=[V5]) as server:
            port = server.sockets[0].getsockname()[1]
            async with dial(f"ws://127.0.0.1:{port}", subprotocols=[V5], proxy=None) as line:
                return [data async for data in Channels(line)]

    begin = [b"\0\x49\x20", b"\1\x49\x20"]
    closed = bytes([CLOSE, DATA])
    assert asyncio.run(talk([*begin, b"\0one", b"\0", b"\0two"])) == [b"one", b"two"]
    assert asyncio.run(talk([b"\0\x49", b"\0\x20one", closed, b"\0late"])) == [b"one"]
    with pytest.raises(ChannelError, match="no route"):
        asyncio.run(talk([*begin, b"\0one", b"\1no route"]))


def test_a_half_closed_stream_still_gets_its_answer(kube: Kube) -> None:
    """Version 5 can tell the pod that no more comes; its answer is read all the same."""
    heard: list[bytes] = []

    async def node(line: ServerConnection) -> None:
        await line.send(b"\0\x49\x20")
        async for frame in line:
            assert isinstance(frame, bytes)
            heard.append(frame)
            if frame == bytes([CLOSE, DATA]):
                await line.send(b"\0answer")
                return

    async def start() -> int:
        server = await serve(node, "127.0.0.1", 0, subprotocols=[V5])
        return int(server.sockets[0].getsockname()[1])

    port = asyncio.run_coroutine_threadsafe(start(), tunnel_loop()).result(10)
    kube.server = f"http://127.0.0.1:{port}"
    forward = PortForward(kube, namespace="n", pod=lambda: "head", port=8265)
    with connect(forward) as line:
        line.sendall(b"question")
        line.shutdown(socket.SHUT_WR)
        assert line.recv(100) == b"answer"
        assert line.recv(100) == b""
    assert heard == [b"\0question", bytes([CLOSE, DATA])]
    forward.close()
