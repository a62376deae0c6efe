"""Proxies and logs of the stand-in reach what really runs."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from aiohttp import WSMsgType, web

from tests.k8s.standin.process import StandIn
from tests.k8s.support.small_objects import pod


async def _echo(http: web.Request) -> web.StreamResponse:
    if http.headers.get("Upgrade") == "websocket":
        socket = web.WebSocketResponse()
        await socket.prepare(http)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                await socket.send_str(f"echo {message.data}")
        return socket
    if http.path == "/stream":
        response = web.StreamResponse()
        await response.prepare(http)
        for number in range(3):
            await response.write(f"{number}\n".encode())
            await asyncio.sleep(0.3)
        return response
    if http.path == "/moved":
        raise web.HTTPFound("/elsewhere")
    if http.path == "/page":
        return web.Response(text='<a href="/x">', content_type="text/html")
    size = 0
    async for chunk in http.content.iter_any():
        size += len(chunk)
    seen = {"path": http.raw_path, "headers": dict(http.headers), "size": size}
    return web.json_response(seen | {"method": http.method}, headers={"X-Own": "yes"})


@pytest.fixture(scope="module")
def backend() -> Iterator[str]:
    """host:port of a web server in a thread."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def start() -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", _echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    yield f"127.0.0.1:{ports[0]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture
def core(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}"


@pytest.fixture
def service(standin: StandIn, http: httpx.Client, core: str, namespace: str, backend: str) -> str:
    """The path of a proxy to a service with a ready pod."""
    body = {
        "metadata": {"name": "head"},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": "head"},
            "ports": [{"name": "dashboard", "port": 8265, "targetPort": "web"}],
        },
    }
    assert http.post(f"{core}/services", json=body).status_code == 201
    put_pod(standin, namespace, backend)
    return f"{core}/services/head:dashboard/proxy"


def put_pod(standin: StandIn, namespace: str, address: str, *, ready: bool = True) -> None:
    body = pod("head", labels={"app": "head"})
    body["metadata"] |= {
        "namespace": namespace,
        "annotations": {"standin/ports": json.dumps({"8265": address})},
    }
    body["spec"]["nodeName"] = "n"
    body["spec"]["containers"][0]["ports"] = [{"name": "web", "containerPort": 8265}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    body["status"] = {"phase": "Running", "podIP": "127.0.0.1", "conditions": conditions}
    standin.put(body)


def test_a_request_goes_through_as_it_is(http: httpx.Client, service: str) -> None:
    data = b"x" * 10_000_000
    answer = http.put(
        f"{service}/a%2Fb/c/?q=1%202", content=data, headers={"X-Ray-Authorization": "secret"}
    )
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["size"]) == ("PUT", "/a%2Fb/c/?q=1%202", len(data))
    assert seen["headers"]["X-Ray-Authorization"] == "secret"
    assert "Authorization" not in seen["headers"]
    assert answer.headers["X-Own"] == "yes"


def test_ports_by_number_and_without_a_slash(http: httpx.Client, service: str) -> None:
    by_number = service.replace("head:dashboard", "http:head:8265")
    assert http.get(f"{by_number}/").json()["path"] == "/"
    assert http.get(service).status_code == 301
    assert http.get(service, follow_redirects=True).json()["path"] == "/"
    unknown = http.get(service.replace("head:dashboard", "head:1") + "/")
    assert unknown.json()["message"] == 'no service port 1 found for service "head"'


def test_redirects_and_pages_stay_below_the_proxy(http: httpx.Client, service: str) -> None:
    assert http.get(f"{service}/moved").headers["Location"] == f"{service}/elsewhere"
    assert http.get(f"{service}/page").text == f'<a href="{service}/x">'


def test_an_answer_streams(http: httpx.Client, service: str) -> None:
    times = []
    with http.stream("GET", f"{service}/stream") as answer:
        for _ in answer.iter_lines():
            times.append(time.monotonic())
    assert len(times) == 3
    assert times[-1] - times[0] > 0.4


def test_a_service_without_ready_pods(
    standin: StandIn, http: httpx.Client, service: str, namespace: str
) -> None:
    put_pod(standin, namespace, "127.0.0.1:9", ready=False)
    answer = http.get(f"{service}/").json()
    text = 'no endpoints available for service "http:head:dashboard"'
    assert (answer["code"], answer["message"]) == (503, text)
    put_pod(standin, namespace, "127.0.0.1:9")
    answer = http.get(f"{service}/").json()
    assert answer["code"] == 503
    assert "error trying to reach service: dial tcp 127.0.0.1:9" in answer["message"]


def tls(standin: StandIn) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(standin.ca_file))


async def _websocket(url: str, context: ssl.SSLContext, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, ssl=context, headers=headers) as socket,
    ):
        await socket.send_str("hello")
        return await socket.receive_str()


def test_a_websocket_goes_through(standin: StandIn, service: str) -> None:
    url = standin.url.replace("https", "wss") + service + "/ws"
    reply = asyncio.run(_websocket(url, tls(standin), standin.admin_token))
    assert reply == "echo hello"


def test_logs(
    standin: StandIn, http: httpx.Client, core: str, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\nthree\n")
    body = pod("p")
    body["metadata"] |= {"namespace": namespace, "annotations": {"standin/log": str(file)}}
    body["spec"]["nodeName"] = "n"
    body["status"] = {"phase": "Running"}
    standin.put(body)
    log = f"{core}/pods/p/log"
    assert http.get(log).text == "one\ntwo\nthree\n"
    assert http.get(log, params={"tailLines": 2}).text == "two\nthree\n"
    assert http.get(log, params={"container": "x"}).status_code == 400
    with http.stream("GET", log, params={"follow": "true", "tailLines": 0}) as answer:
        with file.open("a") as stream:
            stream.write("four\n")
        lines = answer.iter_lines()
        assert next(lines) == "four"
        body["status"] = {"phase": "Succeeded"}
        standin.put(body)
        assert list(lines) == []
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    body["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    standin.put(body)
    assert http.get(log).json()["message"].endswith("is waiting to start: ImagePullBackOff")
