"""The websocket of a tab: who may open it, numbers without gaps, wrong messages."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from llmops_kernel.errors import StoreError
from llmops_kernel.server.hub import Cursor, Frame, Json
from llmops_kernel.server.manager import MANAGER_KEY, Manager
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run, step, worker

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "AQIDBAUGBwgJCgsMDQ4PEA==",
    "Sec-WebSocket-Version": "13",
}


class Counter:
    """A feed that a test drives by hand."""

    period_s = 0.01

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.polls = 0
        self.error: Exception | None = None
        self.is_closed = False

    def poll(self) -> None:
        self.polls += 1
        if self.error is not None:
            raise self.error

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        first = have.get("count", 0) if cursor is None else cursor
        news = self.numbers[first:]
        payload = struct.pack(f"<{len(news)}f", *news)
        frames = [Frame("rows", {"first": first}, payload)] if news else []
        return frames, len(self.numbers)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def manager(jp_serverapp: Any) -> Manager:
    return jp_serverapp.web_app.settings[MANAGER_KEY]


@pytest.fixture
def counter(manager: Manager) -> Counter:
    feed = Counter()
    manager.hub.register("counter", lambda _: feed)
    return feed


@pytest.fixture
def connect(
    jp_serverapp: Any, http_server: Any, jp_http_port: int, jp_auth_header: Any, jp_base_url: str
) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        url = f"ws://127.0.0.1:{jp_http_port}{jp_base_url}llmops/live"
        socket = await websocket_connect(HTTPRequest(url, headers=jp_auth_header))
        try:
            yield socket
        finally:
            socket.close()

    return opened


def parsed(message: str | bytes) -> tuple[Json, bytes]:
    if isinstance(message, str):
        return json.loads(message), b""
    (length,) = struct.unpack("<I", message[:4])
    assert (4 + length) % 4 == 0
    return json.loads(message[4 : 4 + length]), message[4 + length :]


async def receive(socket: Any) -> tuple[Json, bytes]:
    return parsed(await asyncio.wait_for(socket.read_message(), 5))


async def subscribe(socket: Any, topic: str, **have: Any) -> None:
    await socket.write_message(json.dumps({"op": "subscribe", "topic": topic, "have": have}))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}])
async def test_a_stranger_is_refused(headers: Any, raw: Any) -> None:
    answer = await raw("llmops/live", headers={**UPGRADE, **headers})
    assert answer.code == 403


async def test_a_page_of_another_site_is_refused(raw: Any, jp_serverapp: Any) -> None:
    """A browser sends the cookie along wherever the script came from."""
    login = await raw(f"lab?token={jp_serverapp.identity_provider.token}")
    cookie = "; ".join(c.split(";")[0] for c in login.headers.get_list("Set-Cookie"))
    headers = {**UPGRADE, "Cookie": cookie, "Origin": "https://elsewhere.example"}
    assert (await raw("llmops/live", headers=headers)).code == 403


async def test_each_of_two_pages_gets_every_number_once(counter: Counter, connect: Any) -> None:
    async with connect() as one, connect() as two:
        for socket in (one, two):
            await subscribe(socket, "counter")
        seen: dict[Any, list[float]] = {one: [], two: []}
        for number in range(60):
            counter.numbers.append(number)
            await asyncio.sleep(0.003)
        for socket, numbers in seen.items():
            seq = 0
            while len(numbers) < 60:
                header, payload = await receive(socket)
                seq += 1
                assert header["seq"] == seq
                assert header["data"]["first"] == len(numbers)
                numbers += struct.unpack(f"<{len(payload) // 4}f", payload)
            assert numbers == list(range(60))


async def test_a_page_that_comes_back_gets_only_what_it_lacks(
    counter: Counter, connect: Any
) -> None:
    counter.numbers += range(10)
    async with connect() as socket:
        await subscribe(socket, "counter", count=7)
        header, payload = await receive(socket)
    assert header["data"]["first"] == 7
    assert struct.unpack("<3f", payload) == (7, 8, 9)


async def test_trouble_is_reported_once_and_so_is_its_end(counter: Counter, connect: Any) -> None:
    counter.error = StoreError("the disk is gone", remedy="plug it in")
    async with connect() as socket:
        await subscribe(socket, "counter")
        header, _ = await receive(socket)
        assert (header["kind"], header["data"]["remedy"]) == ("trouble", "plug it in")
        counter.error = None
        assert (await receive(socket))[0]["kind"] == "fine"
        counter.numbers.append(1)
        assert (await receive(socket))[0]["kind"] == "rows"


async def test_a_feed_with_a_mistake_of_ours_says_so_and_goes_on(
    counter: Counter, connect: Any
) -> None:
    counter.error = ZeroDivisionError("oops")
    async with connect() as socket:
        await subscribe(socket, "counter")
        header, _ = await receive(socket)
        assert "oops" in header["data"]["message"]
        counter.error = None
        assert (await receive(socket))[0]["kind"] == "fine"


async def test_nobody_looking_means_nobody_polls(counter: Counter, connect: Any) -> None:
    async with connect() as socket:
        await subscribe(socket, "counter")
        await asyncio.sleep(0.1)
        await socket.write_message(json.dumps({"op": "unsubscribe", "topic": "counter"}))
        await asyncio.sleep(0.1)
        before = counter.polls
        await asyncio.sleep(0.2)
        assert counter.polls <= before + 1


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        ("not json", "JSON"),
        ('{"op": "dance"}', "dance"),
        ('{"op": "subscribe", "topic": "nobody"}', "nobody"),
        ('{"op": "subscribe", "topic": "run/"}', "run/"),
        ('{"op": "subscribe", "topic": "operations", "more": 1}', "more"),
        ("[]", "message"),
    ],
)
async def test_a_wrong_message_is_answered_and_the_line_stays(
    message: str, reported: str, connect: Any
) -> None:
    async with connect() as socket:
        await socket.write_message(message)
        header, _ = await receive(socket)
        assert header["kind"] == "error"
        assert reported in header["data"]["message"]
        await socket.write_message('{"op": "ping"}')
        assert (await receive(socket))[0]["kind"] == "pong"


async def test_a_message_without_end_closes_the_line(connect: Any) -> None:
    async with connect() as socket:
        await socket.write_message("x" * 200_000)
        assert await asyncio.wait_for(socket.read_message(), 5) is None


async def test_operations_reach_a_page_with_progress_result_and_failure(
    manager: Manager, connect: Any
) -> None:
    def work(report: Callable[[str], None]) -> Json:
        report("half way")
        return {"answer": 42}

    def fail(report: Callable[[str], None]) -> Json:
        raise StoreError("no space", remedy="make some")

    async with connect() as socket:
        await subscribe(socket, "operations")
        assert (await receive(socket))[0]["data"] == {"operations": [], "whole": True}
        done, failed = (
            manager.operations.start("up", "a", work),
            manager.operations.start("up", "b", fail),
        )
        known: Json = {}
        while {row["state"] for row in known.values()} != {"done", "failed"}:
            header, _ = await receive(socket)
            known |= {row["id"]: row for row in header["data"]["operations"]}
        assert known[done.id]["result"] == {"answer": 42}
        assert known[done.id]["lines"] == ["half way"]
        assert known[failed.id]["trouble"]["remedy"] == "make some"


async def test_a_loss_that_is_no_number_stops_no_page(home: Path, connect: Any) -> None:
    store = RunStore()
    make_run(store, "r-1", ended=None)
    writer = worker(store, "r-1")
    for number, loss in enumerate((math.nan, math.inf, -math.inf), start=1):
        writer.emit(step(number, loss=loss))
    writer.close()
    async with connect() as socket:
        for topic in ("runs", "run/r-1"):
            await subscribe(socket, topic)
        reported = {}
        while len(reported) < 3:
            header, _ = await receive(socket)
            reported[header["topic"], header["kind"]] = header["data"]
    assert reported["runs", "runs"]["runs"][0]["progress"]["done"] == 3
    assert reported["run/r-1", "rows"]["count"] == 3
