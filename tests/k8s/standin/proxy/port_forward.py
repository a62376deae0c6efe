"""pods/portforward over a websocket: two channels a port, the data's and the errors'."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from aiohttp import WSMsgType, web

from tests.k8s.standin.objects.errors import bad_request
from tests.k8s.standin.objects.store import Snapshot
from tests.k8s.standin.proxy.backends import forwardable, pod_address

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
CLOSE = 255
"""Version 5 only: the next byte names the channel that ends."""
CHUNK = 32 * 1024
Writers = dict[int, asyncio.StreamWriter]


async def forward(
    http: web.Request, pod: Snapshot, *, protocols: tuple[str, ...] = (V5, V4)
) -> web.StreamResponse:
    """Until either side closes."""
    if http.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("Upgrade request required")
    ports = [int(port) for text in http.query.getall("ports", []) for port in text.split(",")]
    if not ports:
        raise bad_request('query parameter "ports" is required')
    offered = http.headers.get("Sec-WebSocket-Protocol", "")
    if offered and not {item.strip() for item in offered.split(",")} & set(protocols):
        raise bad_request(f"unable to upgrade: no known protocol in {offered}")
    forwardable(pod)
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
    await socket.prepare(http)
    writers: Writers = {}
    tasks = []
    try:
        for index, port in enumerate(ports):
            for channel in (2 * index, 2 * index + 1):
                await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
            tasks.append(asyncio.create_task(_open(socket, pod, index, port, writers)))
            await asyncio.sleep(0)
        await _incoming(socket, tasks, writers)
    finally:
        for task in tasks:
            task.cancel()
        for writer in writers.values():
            writer.close()
        await socket.close()
    return socket


async def _open(
    socket: web.WebSocketResponse, pod: Snapshot, index: int, port: int, writers: Writers
) -> None:
    host, number = pod_address(pod, port)
    try:
        reader, writers[2 * index] = await asyncio.open_connection(host, number)
    except OSError as error:
        text = (
            f"error forwarding port {port} to pod {pod.uid}, uid : failed to connect to "
            f"{host}:{number} inside namespace {pod.key[0]}: {error.strerror or error}"
        )
        await socket.send_bytes(bytes([2 * index + 1]) + text.encode())
        await socket.close()
        return
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            await socket.send_bytes(bytes([2 * index]) + data)
        if socket.ws_protocol == V5:
            await socket.send_bytes(bytes([CLOSE, 2 * index]))
            return
    await socket.close()


async def _incoming(
    socket: web.WebSocketResponse, tasks: list[asyncio.Task[None]], writers: Writers
) -> None:
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        ends = channel == CLOSE and socket.ws_protocol == V5 and bool(data)
        if ends:
            channel, data = data[0], b""
        if channel // 2 >= len(tasks):
            continue
        while channel not in writers and not tasks[channel // 2].done():
            await asyncio.sleep(0.01)
        if (writer := writers.get(channel)) is not None:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
                if ends:
                    writer.write_eof()
