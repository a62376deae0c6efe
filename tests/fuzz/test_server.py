"""Any body, path and message: a real server answers what is wrong, and then the next one."""

from __future__ import annotations

import asyncio
import json
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import strategies as st
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.server.manager import MANAGER_KEY
from llmops_kernel.store.store import RunStore
from tests.fuzz.examples import examples, json_values, mutated, words
from tests.server.conftest import *  # noqa: F403
from tests.server.conftest import Fetch, ProviderTypes
from tests.server.dashboard.upstream import Upstream, upstream
from tests.server.routes_table import RUN, WITH_BODY
from tests.server.runs import make_run

__all__ = ["upstream"]

FIELDS = (
    *("text", "path", "yaml", "template", "overrides", "workspace", "cluster", "kind", "line"),
    *("column", "data", "whole", "title", "note", "starred", "hidden", "num_cpus", "num_gpus"),
    *("workers", "for_s", "prompt", "system", "max_tokens", "temperature", "only", "engine"),
)
PATHS = (
    *("api/version?view=summary", "nodes?x=1", "api/v0/logs/file?node_id=a&filename=b.log"),
    *("logs/%2A.log", "static/js/main.js", "api/../../x", "//evil.example/x", "%2e%2e/x"),
    *("a%0d%0aX-Injected:%201", "http://evil.example/", "@evil.example/", "a%252fb", "a%5cb"),
)


@pytest.fixture
def provider_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProviderTypes:
    """No cluster is there, and none can be started."""
    for name in ("LLMOPS_HOME", "LLMOPS_CACHE", "KUBECONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    make_run(RunStore(), RUN, steps=2)
    return [KubeRayProvider]


def bodies() -> st.SearchStrategy[str]:
    shaped = st.dictionaries(
        st.sampled_from(FIELDS),
        json_values() | st.sampled_from(["train", "model: tiny-llama\n", "x.train.yaml", RUN]),
        max_size=5,
    )
    return (shaped | json_values()).map(json.dumps) | mutated(
        ('{"kind": "train", "text": "a: 1"}',)
    )


async def test_any_body_is_answered_and_starts_nothing(api: Fetch, jp_serverapp: Any) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    for number, body in enumerate(examples(bodies(), 1000)):
        row = WITH_BODY[number % len(WITH_BODY)]
        path = row.path.removeprefix("llmops/")
        data = body.encode("utf-8", "surrogatepass")
        answer = await api(path, method=row.method, body=data, request_timeout=60)
        assert 200 <= answer.code < 500, (row, body, answer.code, answer.body[:300])
        said = json.loads(answer.body) if answer.body else {}
        if answer.code >= 400:
            assert said["message"], (row, body)
        else:
            assert "Traceback" not in json.dumps(said), (row, body)
    assert set(RunStore().ids()) <= {RUN}
    operations = jp_serverapp.web_app.settings[MANAGER_KEY].operations.list()
    assert not [one for one in operations if one.kind == "submit" and one.state == "done"]
    # Searches and checks may run in a process of their own, for a moment.
    new = {child.pid for child in psutil.Process().children(recursive=True)} - before
    _, alive = psutil.wait_procs([psutil.Process(p) for p in new if psutil.pid_exists(p)], 30)
    assert alive == []


async def test_any_path_stays_on_the_dashboard(
    upstream: Upstream, http_server: Any, jp_http_port: int, jp_auth_header: dict[str, str]
) -> None:
    place = "/user/someone/llmops/dashboard/lab/"
    for path in chain(PATHS, examples(mutated(PATHS), 500)):
        raw = "".join(char for char in path if char not in " \r\n").encode("utf-8", "replace")
        reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
        proof = f"Host: 127.0.0.1\r\nAuthorization: {jp_auth_header['Authorization']}\r\n"
        writer.write(b"GET " + place.encode() + raw + b" HTTP/1.1\r\n")
        writer.write(f"{proof}Connection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        head = answer.split(b"\r\n\r\n")[0]
        assert b" 500 " not in head.split(b"\r\n")[0], (path, answer[:300])
        assert b"\r\nx-injected" not in head.lower(), path
    assert upstream.seen
    for _, uri, headers, _ in upstream.seen:
        assert uri.startswith("/"), uri
        assert not uri.startswith("//"), uri
        assert ".." not in uri.partition("?")[0].split("/"), uri
        assert headers["Host"] == upstream.url.partition("://")[2]
        assert not any("injected" in name.lower() for name in headers)


def messages() -> st.SearchStrategy[str | bytes]:
    shaped = st.fixed_dictionaries(
        {"op": st.sampled_from(["subscribe", "unsubscribe", "ping", "stop"]) | words()},
        optional={
            "topic": st.sampled_from(["runs", "clusters", f"run/{RUN}", "run/x", "chat/"])
            | words(),
            "have": json_values(),
        },
    ).map(json.dumps)
    return shaped | json_values().map(json.dumps) | st.binary(max_size=40)


async def test_any_message_is_answered_and_so_is_the_next(
    http_server: Any, jp_http_port: int, jp_auth_header: dict[str, str]
) -> None:
    url = f"ws://127.0.0.1:{jp_http_port}/user/someone/llmops/live"
    request = HTTPRequest(url, headers=jp_auth_header)
    socket = await websocket_connect(request)
    for message in examples(messages(), 800):
        await socket.write_message(message, binary=isinstance(message, bytes))
        await socket.write_message('{"op": "ping", "topic": ""}')
        while True:
            answer = await asyncio.wait_for(socket.read_message(), 60)
            if answer is None:  # It closed the connection: a page connects again.
                socket = await websocket_connect(HTTPRequest(url, headers=jp_auth_header))
                break
            if isinstance(answer, str) and json.loads(answer)["kind"] == "pong":
                break
    socket.close()
