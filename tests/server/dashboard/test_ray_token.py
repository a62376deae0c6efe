"""The token of Ray's dashboard stays on the server: in no answer, no header, no message, no log."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.store import paths
from llmops_kernel.store.store import RunStore
from tests.providers.conftest import head_record
from tests.server.conftest import Fetch, ProviderTypes
from tests.server.live.test_live import connect, receive, subscribe  # noqa: F401 (a fixture)
from tests.server.routes_table import CLUSTER, ROWS, RUN, SAFE
from tests.server.runs import make_run

TOKEN = "5ecre7" * 10
SESSION = "session_2026-11-21"
USAGE = {"clusterStatus": {"loadMetricsReport": {"usage": {"CPU": [1.0, 2.0]}}}}
NODES = {"result": {"result": [{"state": "ALIVE", "resources_total": {"CPU": 2.0}}]}}
HEALTH = "/api/local_raylet_healthz"
CONFIG = "model: tiny-llama\ndata: rows.jsonl\n"


class Dashboard(BaseHTTPRequestHandler):
    """Knows its token, says what a dashboard says, and fails at all the rest."""

    asked: list[str] = []  # noqa: RUF012 (emptied by the fixture)
    answers: dict[str, Any] = {  # noqa: RUF012 (never changed)
        "/api/version": {"session_name": SESSION, "ray_version": "2.60.0", "version": "4"},
        "/api/v0/nodes?detail=1": {"data": NODES},
        "/api/cluster_status": {"data": USAGE},
        "/api/jobs/": [],
    }

    def do_GET(self) -> None:
        self.asked.append(self.path)
        is_ours = self.headers["Authorization"] == f"Bearer {TOKEN}"
        found = self.answers.get(self.path) if is_ours and self.command == "GET" else None
        if self.path == HEALTH:  # The node's agent, here at the same port, asks for no token.
            found = "success"
        body = json.dumps({"detail": "no luck"} if found is None else found).encode()
        self.send_response(200 if found is not None else 500 if is_ours else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", f"ray-authentication-token={TOKEN}; Path=/")
        self.send_header("X-Token", TOKEN)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def dashboard() -> Iterator[int]:
    Dashboard.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def head() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the process of Ray's head."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def cluster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dashboard: int,
    head: subprocess.Popen[bytes],
    provider_types: ProviderTypes,
) -> str:
    """A cluster that looks alive, and a run on it."""
    monkeypatch.setenv(paths.HOME_ENV_VAR, str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    temp_dir = tmp_path / "ray"
    temp_dir.mkdir()
    (temp_dir / "ray_current_cluster").write_text("127.0.0.1:6379")
    (temp_dir / "session_latest").symlink_to(temp_dir / SESSION)
    (temp_dir / SESSION).mkdir()
    (temp_dir / SESSION / "dashboard_agent_listen_port_node").write_text(str(dashboard))
    folder = cluster_folder(paths.home(), CLUSTER)
    folder.create()
    folder.token.write_text(TOKEN)
    facts = {
        "dashboard_port": dashboard,
        "pid": head.pid,
        "pid_created_s": psutil.Process(head.pid).create_time(),
    }
    folder.write(head_record(temp_dir, **facts))
    make_run(RunStore(), RUN, steps=2, ended=None, cluster=CLUSTER)
    provider_types[0] = Failing
    return CLUSTER


class Failing(LocalProvider):
    """Its actions fail with an error that shows all it has."""

    def _fail(self, name: str, **more: Any) -> NoReturn:
        connection = self.connect(name)
        raise ClusterUnreachableError(
            f"no luck: {connection!r} {connection}", remedy=f"{connection}"
        )

    suspend = resume = scale = delete = _fail


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of every library too; at this level one of them writes down what the dashboard sent."""
    messages = [record.getMessage() for record in caplog.records]
    return [text for text in messages if not text.startswith("receive_response_headers.complete")]


async def settled(api: Fetch) -> list[dict[str, Any]]:
    for _ in range(200):
        operations: list[dict[str, Any]] = json.loads((await api("operations")).body)
        if all(operation["state"] != "running" for operation in operations):
            return operations
        await asyncio.sleep(0.05)
    raise AssertionError(operations)


async def test_no_answer_and_no_log_has_rays_token(
    writable: None,
    api: Fetch,
    jp_root_dir: Path,
    connect: Any,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    (jp_root_dir / "rows.jsonl").write_text('{"text": "a"}\n')
    bodies = {"runs": {"text": CONFIG, "cluster": CLUSTER}, "configs/check": {"text": CONFIG}}
    query = f"action=delete&kind=train&path=x&text=x&runs={RUN},{RUN}"
    heard: list[str] = []
    async with connect() as page:
        for topic in ("clusters", "runs", "operations", f"run/{RUN}"):
            await subscribe(page, topic)
        for row in sorted(ROWS, key=lambda row: row.method == "DELETE"):
            path = row.path.removeprefix("llmops/")
            body = None if row.method in SAFE else json.dumps(bodies.get(path, {}))
            answer = await api(f"{path}?{query}", method=row.method, body=body, request_timeout=60)
            heard.append(f"{row} {list(answer.headers.get_all())} {answer.body!r}")
            if row.method not in SAFE:
                await settled(api)
        heard.append(json.dumps(await settled(api)))
        for path in ("api/version", "", "api/jobs/", "nothing"):
            answer = await api(f"dashboard/{CLUSTER}/{path}")
            heard.append(f"{list(answer.headers.get_all())} {answer.body!r}")
        with suppress(TimeoutError):
            async with asyncio.timeout(3):
                while True:
                    heard.append(str(await receive(page)))
    printed = capfd.readouterr()
    everything = "\n".join([*heard, *logged(caplog), printed.out, printed.err])
    for part in (SESSION, "no luck", '"state": "failed"', "'topic': 'clusters'", "'ready'"):
        assert part in everything, part  # It was a cluster that answers.
    assert any(path.startswith("/api/jobs/") for path in Dashboard.asked)
    assert TOKEN not in everything
    assert TOKEN[:16] not in everything


async def test_a_token_that_ray_refuses_is_not_reported_either(api: Fetch, cluster: str) -> None:
    cluster_folder(paths.home(), cluster).token.write_text(f"old-{TOKEN}")
    for path in (f"clusters/{cluster}", "clusters", f"runs/{RUN}/log", f"dashboard/{cluster}/x"):
        answer = await api(path, request_timeout=60)
        assert TOKEN not in f"{list(answer.headers.get_all())} {answer.body!r}"
