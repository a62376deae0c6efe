"""A real JupyterLab on a free port and what a test does in its pages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "test-artifacts"
PICTURES = bool(os.environ.get("LLMOPS_TEST_PICTURES"))
"""Whether pictures are taken, for a person to look at; the tests read none."""
_IDLE = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Lab:
    """Own config, data, workspaces and settings folders: nothing of the user's is read.

    `base_url` is what a hub would put before everything. `home` is where runs and clusters lie;
    Ray's sockets need it to be short.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base_url: str = "/",
        home: Path | None = None,
        work: Path | None = None,
    ) -> None:
        self.work = work or folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.base_url, self.home = base_url, home or folder / "home"
        self.port, self.token = free_port(), "test-token"
        self.log = folder / "lab.log"
        self._folder = folder
        settings = folder / "settings/@jupyterlab/apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text(
            json.dumps({"fetchNews": "false", "checkForUpdates": False})
        )
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        folder = self._folder
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--expose-app-in-browser"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}"),
            *("--ServerApp.port_retries=0", "--ServerApp.allow_root=True"),
            f"--ServerApp.base_url={self.base_url}",
            *(f"--ServerApp.root_dir={self.work}", f"--LabApp.user_settings_dir={folder}/settings"),
            f"--LabApp.workspaces_dir={folder}/workspaces",
        ]
        env = {
            **os.environ,
            "JUPYTER_TOKEN": self.token,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "PYTHONPATH": str(ROOT),
            "LLMOPS_HOME": str(self.home),
        }
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_url}".rstrip("/")

    def page_url(self, path: str = "", *, reset: bool = True) -> str:
        query = f"{'reset&' if reset else ''}token={self.token}"
        return f"{self.url}/lab{path}?{query}"

    def wait(self, timeout_s: float = 60) -> None:
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self.process.poll() is None:
            with suppress(OSError):
                urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5)
                return
            time.sleep(0.2)
        raise RuntimeError(f"JupyterLab did not come up:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def kill(self) -> None:
        """As a crash or the kernel's memory killer would."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """On the same port, so that open pages find it again."""
        self.process = self._spawn()
        self.wait()

    def write(self, name: str, *cells: str) -> str:
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, self.work / name)
        return name


class Notebook:
    """One open notebook page."""

    def __init__(self, page: Any, lab: Lab, name: str) -> None:
        self.page, self.lab, self.name = page, lab, name

    def open(self) -> None:
        self.page.goto(self.lab.page_url(f"/tree/{self.name}"))
        self.page.wait_for_function(_IDLE, timeout=60_000)

    def command(self, command: str, **arguments: Any) -> None:
        self.page.evaluate(
            "([id, args]) => window.jupyterapp.commands.execute(id, args)", [command, arguments]
        )

    def run_all(self) -> None:
        # Not awaited: a cell may block for long on purpose.
        self.page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=name)
        light = "true" if "Light" in name else "false"
        selector = f"body[data-jp-theme-light='{light}']"
        self.page.wait_for_selector(selector, state="attached")

    def panel(self, index: int = 0) -> Any:
        return self.page.locator(".llmops-run").nth(index)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.text_content() or "")

    def shot(self, name: str, *, panel_only: bool = False) -> None:
        if not PICTURES:
            return
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.wait_for_timeout(400)  # The theme's stylesheet and the next frame.
        shown = self.panel() if panel_only else self.page
        shown.screenshot(path=str(ARTIFACTS / f"{name}.png"))
