"""One local cluster in a home of its own: its work, its processes, and its page that is open."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import websocket

from tests.score.conftest import numbered, write_workspace
from tests.soak.sampling import command_line
from tests.tiny_training import write_rows

MARK = "LLMOPS_CLUSTER_DIR"
_COMMAND_S = 1800.0
"""Nothing may take longer, however busy the machine is."""
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
ROOT = Path(__file__).parents[3]
CLUSTER = "local"
EVERY_STEPS = 5
_TEMPLATE = """\
name: local
provider: local
num_cpus: 6
object_store_memory_bytes: 100000000
stop_wait_s: 20
"""
# A step is written down a second time when the next one begins: the journal has it by then.
_HOOKS = """
import os, time
from transformers import TrainerCallback

class Truth(TrainerCallback):
    def _note(self, args, state):
        if state.global_step:
            with open({truth!r}, "a") as truth:
                print(args.output_dir, os.getpid(), state.global_step, file=truth, flush=True)

    def on_step_begin(self, args, state, control, **kwargs):
        self._note(args, state)

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.25)

    def on_train_end(self, args, state, control, **kwargs):
        self._note(args, state)

def callbacks():
    return [Truth()]
"""
_TRAIN = {
    "name": "train",
    "model": "tiny-llama",
    "data": {"train": "rows.jsonl", "max_length": 64},
    "method": "lora",
    "parallelism": {"strategy": "ddp", "num_workers": 1},
    "training": {
        "micro_batch_size": 2,
        "global_batch_size": 2,
        "max_steps": 160,
        "max_failures": 3,
    },
    "checkpoint": {"every_steps": EVERY_STEPS},
    "evaluation": {"at_end": False},
    "hooks": "hooks.py",
}
_INSTANT = {"keep_s": 4, "batch_size": 16, "options": {"step_s": 0.15}}
_REAL = {"type": "transformers", "keep_s": 4, "batch_size": 16}
_NO_OTHERS = {name: False for name in ("jupyterlab", "jupyter_lsp", "notebook_shim")}
"""They look for language servers and front ends for many seconds."""
ROWS = {"instant": 6000, "real": 1500}


class Commands:
    """`llmops` with a home of its own in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = os.environ | {"LLMOPS_HOME": str(root / "home")}
        self.env.pop("RAY_ADDRESS", None)

    def line(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "llmops_kernel", *words]

    def call(
        self, *words: str, cwd: Path | None = None, timeout_s: float = _COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; one that does not end has exit code 124."""
        line = self.line(*words)
        try:
            return subprocess.run(
                line,
                cwd=cwd or self.root,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(line, 124, "", f"no end within {timeout_s:.0f} s")


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes running."""
    line = [sys.executable, "-SE", "-c", "while True: pass"]
    running = [subprocess.Popen(line, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


class Place:
    """A home in `root`, with configs of a training, two scorings and a script."""

    def __init__(self, root: Path) -> None:
        self.commands = Commands(root)
        self.root, self.home = root, root / "home"
        self.truth = root / "truth.txt"
        self.heads: list[str] = []
        """Temporary folders of the heads, the present one last."""
        (root / "cluster_templates").mkdir()
        (root / "cluster_templates" / "local.yaml").write_text(_TEMPLATE)
        self.train = self._train(root / "train")
        self.scores = {name: self._score(root / name, name) for name in ROWS}
        (root / "script").mkdir()
        (root / "script" / "hello.py").write_text("print('it ran')\n")
        self.script = root / "script" / "hello.py"

    def _train(self, folder: Path) -> Path:
        folder.mkdir()
        write_rows(folder, count=96)
        (folder / "hooks.py").write_text(_HOOKS.format(truth=str(self.truth)))
        path = folder / "chaos.train.yaml"
        path.write_text(json.dumps(_TRAIN))
        return path

    def _score(self, folder: Path, name: str) -> Path:
        path = write_workspace(folder, numbered(ROWS[name]))
        config = json.loads(path.read_text())
        config["name"] = name
        config["engine"] = config["engine"] | _INSTANT if name == "instant" else _REAL
        config["sampling"] = {"max_tokens": 8}
        config["output"] = {"part_rows": 50}
        path.write_text(json.dumps(config))
        return path

    def note_head(self) -> None:
        """Remember the folder of the head that runs now."""
        record = self.head()
        if record and record["temp_dir"] not in self.heads[-1:]:
            self.heads.append(record["temp_dir"])

    def head(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            path = self.home / "clusters" / CLUSTER / "cluster.json"
            return dict(json.loads(path.read_text()))
        return {}

    def head_lives(self) -> bool:
        """Whether the head and the parts of Ray without which it is none run."""
        names = {name_of(process) for process in self.processes()}
        pid = int(self.head().get("pid") or 0)
        return bool(pid) and is_alive(pid) and {"gcs_server", "raylet"} <= names

    def processes(self, heads: Iterable[str] | None = None) -> list[psutil.Process]:
        """Living ones of these heads (default: the present one), by environment or command line."""
        wanted = set(self.heads[-1:] if heads is None else heads)
        own, found = self._own(), []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid in own or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                line = command_line(process)
                if _mark(process) in wanted or any(head in line for head in wanted):
                    found.append(process)
        return found

    def left(self) -> list[psutil.Process]:
        """All that has this home in its environment, or a head of it in its command line."""
        found = {process.pid: process for process in self.processes(self.heads)}
        own = self._own()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                lives = process.status() != psutil.STATUS_ZOMBIE and process.pid not in own
                if lives and process.environ().get("LLMOPS_HOME") == str(self.home):
                    found[process.pid] = process
        return list(found.values())

    def _own(self) -> set[int]:
        """This process and its own: clients and the server of the page."""
        mine = psutil.Process()
        return {mine.pid, *(child.pid for child in mine.children(recursive=True))} - {
            process.pid for process in self._heads_of(mine)
        }

    def _heads_of(self, mine: psutil.Process) -> list[psutil.Process]:
        """A head is a daemon, but one whose `up` still runs is below it."""
        found = []
        for child in mine.children(recursive=True):
            with suppress(psutil.Error):
                if _mark(child) is not None:
                    found.append(child)
        return found


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None


def job_of(process: psutil.Process) -> str:
    """What Ray has told an entrypoint of its job; empty for another process."""
    try:
        return str(process.environ().get(_JOB, ""))
    except psutil.Error:
        return ""


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Page:
    """A Jupyter server with our extension, and a page that follows all runs through it."""

    def __init__(self, place: Place) -> None:
        self._place, self._token = place, "soak"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._socket: websocket.WebSocket | None = None
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        folder = self._place.root
        env = self._place.commands.env | {
            "JUPYTER_TOKEN": self._token,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "PYTHONPATH": str(ROOT),
        }
        line = [
            *(sys.executable, "-m", "jupyter_server", "--no-browser"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self._port}"),
            *("--ServerApp.port_retries=0", "--ServerApp.allow_root=True"),
            f"--ServerApp.root_dir={folder}",
            f"--ServerApp.jpserver_extensions={_NO_OTHERS}",
        ]
        with (folder / "server.log").open("ab") as log:
            return subprocess.Popen(line, env=env, stdout=log, stderr=log, cwd=folder)

    def get(self, path: str, *, timeout_s: float = 60.0) -> Any:
        """Return an answer of our routes; None if the server does not give one."""
        url = f"http://127.0.0.1:{self._port}/llmops/{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"token {self._token}"})
        with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=timeout_s) as a:
            return json.load(a)
        return None

    def wait(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while self.get("clusters") is None:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.3)
        return True

    def follow(self, run_ids: Iterable[str]) -> None:
        """Open the page anew: it subscribes to lists and runs, and reads what it is sent."""
        if self._socket is not None:
            with suppress(OSError, websocket.WebSocketException):
                self._socket.close()
        self._socket = opened = websocket.create_connection(
            f"ws://127.0.0.1:{self._port}/llmops/live",
            header=[f"Authorization: token {self._token}"],
            timeout=120,
        )
        for topic in ("clusters", "runs", *(f"run/{one}" for one in run_ids)):
            opened.send(json.dumps({"op": "subscribe", "topic": topic, "have": {}}))
        threading.Thread(target=_read, args=(opened,), daemon=True).start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Again, on the same port."""
        self.process = self._spawn()


def _read(opened: websocket.WebSocket) -> None:
    with suppress(OSError, websocket.WebSocketException, AttributeError):
        while opened.recv() != "":
            pass


def remove(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)


def environment() -> None:
    """Keep to what is on this machine, and to one cache for all runs of the soak."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if "LLMOPS_TEST_CACHE" in os.environ:
        os.environ["LLMOPS_CACHE"] = os.environ["LLMOPS_TEST_CACHE"]
