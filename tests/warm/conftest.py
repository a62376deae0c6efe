"""A fork server as a node has it, but with little to import, and no Ray."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.warm import keeper, start_hook
from llmops_kernel.warm.files import WarmFolder
from tests.waiting import until

PRELOADED = ["numpy", "tempfile", "multiprocessing", "logging"]


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@dataclass(kw_only=True)
class Node:
    """The warm folder, its keeper, and the `python` of a job on that node."""

    folder: WarmFolder
    python: str = sys.executable
    keeper: subprocess.Popen[bytes] | None = None
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def create(cls, root: Path) -> Node:
        node = cls(folder=WarmFolder(root / "warm"))
        node.folder.create()
        start_hook.write_python(node.folder)
        return node

    def use(self, python: Path) -> None:
        """Another interpreter, of a virtual environment that a test may change."""
        self.python = str(python)
        for script in self.folder.bin.iterdir():
            script.write_text(script.read_text().replace(sys.executable, self.python))

    def start(self, *modules: str, path: str = "", watch: int | None = None) -> None:
        """As `ray start` does it; `path` comes as PYTHONPATH."""
        watching = ["--watch", str(watch)] if watch else []
        line = [
            *(self.python, "-m", "llmops_kernel.warm.keeper", str(self.folder.root)),
            *(*watching, "--preload", *(modules or PRELOADED)),
        ]
        env = self.env(PYTHONPATH=path) if path else self.env()
        self.folder.write_command(line, env)
        with self.folder.log.open("ab") as log:
            self.keeper = subprocess.Popen(
                line, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def ready(self, *, timeout_s: float = 30) -> Node:
        until(lambda: self.status() is not None, timeout_s=timeout_s)
        return self

    def status(self) -> dict[str, Any] | None:
        state = self.folder.read_state() or {}
        ready = state.get("state") == "ready"
        return keeper.ask(self.folder, timeout_s=1) if ready else None

    @property
    def server_pid(self) -> int:
        status = self.status()
        assert status is not None
        return int(status["pid"])

    def server_is_new(self, old_pid: int) -> bool:
        status = self.status()
        return status is not None and status["pid"] != old_pid

    def env(self, **added: str) -> dict[str, str]:
        keep = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS")
        env = {name: os.environ[name] for name in keep if name in os.environ}
        return env | {"LLMOPS_WARM_DIR": str(self.folder.root)} | added

    def popen(self, *arguments: object, warm: bool = True, **options: Any) -> subprocess.Popen[Any]:
        """`python ARGUMENTS`, or the plain interpreter in the same way (through a shell)."""
        plain = ["/bin/sh", "-c", f'exec {self.python} "$@"', "sh"]
        line = [str(self.folder.bin / "python")] if warm else plain
        options.setdefault("env", self.env())
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([*line, *map(str, arguments)], **options)
        self.others.append(process)
        return process

    def run(
        self, *arguments: object, warm: bool = True, feed: bytes | None = None, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        if feed is not None:
            options["stdin"] = subprocess.PIPE
        process = self.popen(*arguments, warm=warm, **options)
        out, err = process.communicate(feed, timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def reasons(self) -> list[str]:
        """Of the cold starts so far, oldest first."""
        return [e["reason"] for e in self.folder.read_events() if e["event"] == "cold"]

    def reported(self, **options: Any) -> str:
        """How a process that starts now came to life, in its own words."""
        done = self.run("-c", "import os; print(os.environ['LLMOPS_WARM'])", **options)
        return done.stdout.decode().strip()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.folder.read_events() if event["event"] == kind]

    def stop(self) -> None:
        for process in self.others:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if self.keeper is not None:
            self.keeper.terminate()
            self.keeper.wait(20)
        state = self.folder.read_state() or {}
        pid = state.get("keeper_pid")
        if pid and is_alive(pid):  # One that a launcher started.
            os.kill(pid, signal.SIGTERM)
            until(lambda: not is_alive(pid))


@pytest.fixture(scope="session")
def short_root() -> Iterator[Path]:
    """Below it a socket's path stays under 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="lw-", dir="/tmp"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def node(short_root: Path) -> Iterator[Node]:
    """For tests that only start processes."""
    node = Node.create(short_root)
    node.start()
    yield node.ready()
    node.stop()


@pytest.fixture
def own_node(short_root: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Not started; for tests that do harm."""
    root = Path(tempfile.mkdtemp(dir=short_root))
    node = Node.create(root)
    yield node
    node.stop()


@pytest.fixture
def changeable(own_node: Node, tmp_path: Path) -> Path:
    """The site-packages of the node's own virtual environment; all others are on its path too."""
    venv.create(tmp_path / "venv", with_pip=False)
    own_node.use(tmp_path / "venv/bin/python")
    packages = next(tmp_path.glob("venv/lib/*/site-packages"))
    (packages / "others.pth").write_text("\n".join(e for e in sys.path if "/" in e))
    return packages
