"""Many requests at once, and a server that was restarted in between."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse

import llmops_kernel
from llmops_kernel.config import assist
from llmops_kernel.providers import registry
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from llmops_kernel.server import base
from llmops_kernel.server import cluster_routes as cluster_work
from llmops_kernel.server.dashboard.ray_pages import RayPages
from llmops_kernel.server.manager import MANAGER_KEY, OWN_THREADS, THREADS, Manager
from llmops_kernel.store import paths
from llmops_kernel.store.store import RunStore
from tests.providers.local.test_actions import FULL, defined
from tests.server.conftest import Fetch, ProviderTypes
from tests.server.routes_table import CLUSTER, ROWS, RUN, Row
from tests.server.runs import make_run

PACKAGE = str(Path(llmops_kernel.__file__).parent)
OFF_THE_LOOP = frozenset(
    {
        *(f"RunStore.{name}" for name in ("resolve", "record", "attempts", "notes")),
        *(f"LocalProvider.{name}" for name in ("names", "get", "resume")),
        *("below", "provider_for_name", "_files"),
        *("examine", "complete", "hover", "render", "form_schema"),
    }
)
"""Names of functions that read files or take long."""
WAITING = frozenset({"names", "get", "connect", "survey", "locate", "list"})
"""Methods of a provider that may wait for a cluster, an API server or a plug-in."""
HANGING: dict[str, dict[str, str]] = {
    "clusters": {},
    f"clusters/{CLUSTER}": {},
    f"clusters/{CLUSTER}/preview?action=delete": {},
    f"clusters/{CLUSTER}/suspend": {"method": "POST"},
    f"dashboard/{CLUSTER}/api/version": {},
    "dashboard-views": {"method": "POST", "body": json.dumps({"cluster": CLUSTER})},
}
"""Requests that wait for a provider, and how they are sent."""
QUICK = (
    *("handshake", "operations", "configs/kinds", "configs/template?kind=train", "templates"),
    *("runs", f"runs/{RUN}", f"runs/{RUN}/rows", f"runs/{RUN}/chat", "run-table/columns"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one run and one stopped cluster."""
    monkeypatch.setenv(paths.HOME_ENV_VAR, str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_run(RunStore(), RUN, steps=2)
    folder = cluster_folder(paths.home(), CLUSTER)
    folder.create()
    folder.write(defined(tmp_path / "gone", FULL).model_copy(update={"stopped_s": 1.0}))
    return tmp_path / "home"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a test holds up waits for it; opened at the latest when the test ends."""
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.fixture
def slow_provider(gate: threading.Event, provider_types: ProviderTypes) -> None:
    """A provider that answers once the gate is open."""

    class SlowProvider(LocalProvider):
        def names(self) -> tuple[str, ...]:
            gate.wait(30)
            return super().names()

    provider_types[0] = SlowProvider


@pytest.fixture
def slow_store(gate: threading.Event, store_type: list[type[RunStore]]) -> None:
    """A store that lists its runs once the gate is open."""

    class SlowStore(RunStore):
        def ids(self) -> list[str]:
            gate.wait(30)
            return super().ids()

    store_type[0] = SlowStore


def _ask(api: Fetch, url: str) -> asyncio.Task[HTTPResponse]:
    """Send a request of HANGING, or GET another one."""
    return asyncio.create_task(api(url, request_timeout=60, **HANGING.get(url, {})))


async def _others_answer(
    api: Fetch, waiting: list[asyncio.Task[HTTPResponse]], quick: Iterable[str]
) -> None:
    await asyncio.sleep(0.5)
    assert not any(task.done() for task in waiting)
    for path in quick:
        began_s = time.monotonic()
        assert (await api(path)).code == 200
        assert time.monotonic() - began_s < 10


async def test_slow_requests_block_nobody(
    slow_provider: None, slow_store: None, api: Fetch, gate: threading.Event
) -> None:
    urls = ["clusters", "runs", f"clusters/{CLUSTER}"] * 7
    waiting = [_ask(api, url) for url in urls[:20]]
    await _others_answer(api, waiting, QUICK[:3])
    gate.set()
    assert {answer.code for answer in await asyncio.gather(*waiting)} == {200}


async def test_more_requests_than_threads_behind_a_provider_that_hangs_block_no_others(
    slow_provider: None, api: Fetch, gate: threading.Event, jp_serverapp: Any, tmp_path: Path
) -> None:
    """A dozen dashboard tabs of such a cluster held all threads of the quick routes once."""
    (tmp_path / "index.html").write_text("<head></head>")
    manager: Manager = jp_serverapp.web_app.settings[MANAGER_KEY]
    view = manager.views.open(cluster="other", user="a", pages=RayPages("1", tmp_path))
    waiting = [_ask(api, url) for url in HANGING for _ in range(OWN_THREADS + 2)]
    assert len(waiting) > OWN_THREADS + THREADS
    await _others_answer(api, waiting, (*QUICK, f"dashboard-views/{view.id}/"))
    gate.set()
    answers = await asyncio.gather(*waiting)
    assert [answer.body for answer in answers if answer.code >= 500] == []


@contextmanager
def calls_on_this_thread(names: Container[str]) -> Iterator[list[str]]:
    """Collects which of our functions of these names this thread calls."""
    found: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname in names and PACKAGE in code.co_filename:
            found.append(code.co_qualname)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


def _exists(qualname: str) -> bool:
    """A function that was renamed would be watched in vain."""
    owners = {"RunStore": RunStore, "LocalProvider": LocalProvider}
    owner, _, name = qualname.rpartition(".")
    if owner:
        return hasattr(owners[owner], name)
    return any(hasattr(each, name) for each in (base, registry, cluster_work, assist))


async def test_nothing_is_read_on_the_event_loop(api: Fetch, provider_types: ProviderTypes) -> None:
    class Quick(LocalProvider):
        def _up(self, *_: Any) -> ClusterInfo:
            """Start nothing."""
            return self.get(CLUSTER)

    provider_types[0] = Quick
    assert all(_exists(name) for name in OFF_THE_LOOP)
    for row in sorted(ROWS, key=lambda row: row.method == "DELETE"):
        if row.path.endswith("/live"):
            continue
        with calls_on_this_thread(OFF_THE_LOOP) as on_loop:
            answer = await _of_row(api, row)
        assert answer.code < 500, (row, answer.body)
        assert on_loop == [], row


async def _of_row(api: Fetch, row: Row) -> HTTPResponse:
    """Send a request of a route."""
    place = {"kind": "train", "text": "data: ", "path": "x.train.yaml", "line": 1, "column": 6}
    bodies = {
        "llmops/configs/check": {"text": "data: x", "path": "x.train.yaml", "with_files": True},
        "llmops/configs/complete": place,
        "llmops/configs/hover": place,
        "llmops/configs/render": {"kind": "train", "data": {}},
        "llmops/clusters": {"template": "local"},
        "llmops/runs": {"path": "x.train.yaml"},
        "llmops/dashboard-views": {"cluster": CLUSTER},
    }
    query = f"?action=delete&kind=train&path=x&text=x&runs={RUN},{RUN}"
    body = None if row.method == "GET" else json.dumps(bodies.get(row.path, {}))
    return await api(row.path.removeprefix("llmops/") + query, method=row.method, body=body)


async def test_no_route_asks_a_provider_in_threads_that_others_need(
    api: Fetch, provider_types: ProviderTypes
) -> None:
    """It may wait for a cluster or a plug-in: quick requests need `run`'s threads and the loop."""
    asked: list[tuple[str, str]] = []

    class Noting(LocalProvider):
        def __getattribute__(self, name: str) -> Any:
            if name in WAITING:
                asked.append((name, threading.current_thread().name))
            return super().__getattribute__(name)

        def _up(self, *_: Any) -> ClusterInfo:
            """Start nothing."""
            return self.get(CLUSTER)

    provider_types[0] = Noting
    assert all(hasattr(LocalProvider, name) for name in WAITING)
    for row in sorted(ROWS, key=lambda row: row.method == "DELETE"):
        if row.path.endswith("/live"):
            continue
        before = len(asked)
        await _of_row(api, row)
        needed = [one for one in asked[before:] if one[1].startswith(("llmops-server", "Main"))]
        assert needed == [], row
    assert {name for name, _ in asked} >= {"names", "get", "connect"}


async def test_of_two_that_resume_one_wins_and_the_other_is_reported(
    api: Fetch, gate: threading.Event, provider_types: ProviderTypes
) -> None:
    resumed: list[str] = []

    class Slow(LocalProvider):
        def resume(self, name: str, **_: Any) -> ClusterInfo:
            resumed.append(name)
            gate.wait(20)
            return ClusterInfo(name=name, provider="local", state=ClusterState.READY)

    provider_types[0] = Slow
    asks = [api(f"clusters/{CLUSTER}/resume", method="POST", body="{}") for _ in range(6)]
    answers = sorted(await asyncio.gather(*asks), key=lambda answer: answer.code)
    assert [answer.code for answer in answers] == [202, 409, 409, 409, 409, 409]
    for answer in answers[1:]:
        reported = json.loads(answer.body)
        assert "`resume` is in progress" in reported["message"]
        assert reported["remedy"]
    gate.set()
    operation = json.loads(answers[0].body)
    for _ in range(100):
        operation = json.loads((await api(f"operations/{operation['id']}")).body)
        if operation["state"] != "running":
            break
        await asyncio.sleep(0.05)
    assert (operation["state"], resumed) == ("done", [CLUSTER])


async def test_an_operation_of_a_server_that_is_gone_says_what_to_do(
    api: Fetch, jp_serverapp: Any, gate: threading.Event
) -> None:
    settings = jp_serverapp.web_app.settings
    before: Manager = settings[MANAGER_KEY]
    started = before.operations.start("up", "lab", lambda report: {"done": gate.wait(10)})
    assert (await api(f"operations/{started.id}")).code == 200
    settings[MANAGER_KEY] = Manager(root_dir=before.root_dir)
    try:
        answer = await api(f"operations/{started.id}")
        reported = json.loads(answer.body)
        assert (answer.code, started.id in reported["message"]) == (404, True)
        assert "restarted" in reported["remedy"]
        assert json.loads((await api("operations")).body) == []
    finally:
        gate.set()
        await settings[MANAGER_KEY].close()
        settings[MANAGER_KEY] = before


async def test_a_page_that_leaves_in_the_middle_of_a_download_holds_nothing(
    api: Fetch, jp_http_port: int, jp_auth_header: dict[str, str], home: Path
) -> None:
    logs = home / "runs" / RUN / "logs"
    logs.mkdir(parents=True)
    (logs / "driver-1.log").write_bytes(b"x" * 99 + b"\n" * 50_000_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    head = f"GET /user/someone/llmops/runs/{RUN}/log/download HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.transport.abort()
    began_s = time.monotonic()
    assert (await api("handshake")).code == 200
    assert time.monotonic() - began_s < 10
