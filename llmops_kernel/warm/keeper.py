"""Keeps one fork server alive on a node: starts it, checks it, replaces it."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.hardware.priority import give_idle_time
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.launcher import GREETING, is_alive
from llmops_kernel.warm.preload import fingerprint, installed, own_files
from llmops_kernel.warm.progress import Limits, Progress

PREPARE = "llmops_kernel.train.deepspeed_ops"  # Only a name: nothing of a run is imported here.
PREPARE_CODE = Path(__file__).parents[2].joinpath(*PREPARE.split(".")).with_suffix(".py")
_POLL_S = 1.0
_STATUS_EVERY_S = 5.0
_MEASURE_S = 2.0  # How often the processor time of a starting server is read.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 1800.0
_SETTLED_S = 1.0
_STEADY_S = 60.0  # After being ready for so long, the next death is unrelated to earlier ones.
_MOST_TRIES = 3  # So many servers in succession that never became ready: the node starts cold.
_MOST_DEATHS = 7
_FAILED_PAUSE_S = 60.0


@dataclass(kw_only=True)
class Keeper:
    """Runs one fork server after another, until the watched process has ended or SIGTERM comes."""

    folder: WarmFolder
    modules: list[str]
    watched_pid: int | None = None
    limits: Limits = field(default_factory=Limits)
    _server: subprocess.Popen[bytes] | None = None
    _old: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _started_s: float = 0.0
    _is_ready: bool = False
    _ready_s: float = 0.0
    _status_s: float = 0.0
    _progress: Progress | None = None
    _tries: int = 0
    _deaths: int = 0
    _pause_s: float = _FIRST_PAUSE_S
    _stop: bool = False
    _prepares: bool = False
    _stack: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stop", True))
        if problem := self.folder.problem():
            self._off(problem)
            return
        self._start()
        while not self._stop and self._is_wanted():
            time.sleep(0.05 if not self._is_ready else _POLL_S)
            self._old = [server for server in self._old if server.poll() is None]
            self._check_server()
        for server in [*self._old, *([self._server] if self._server else [])]:
            with contextlib.suppress(OSError):
                server.kill()

    def _is_wanted(self) -> bool:
        return self.watched_pid is None or is_alive(self.watched_pid)

    def _start(self) -> None:
        self._stack = fingerprint([*installed(_path()), *own_files()])
        # Not in a new session: it begins one when it has imported everything (server._take_share).
        with self.folder.log.open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "llmops_kernel.warm.server", *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder.root,
            )
        self._started_s = time.monotonic()
        self._is_ready, self._progress = False, Progress(self._server.pid, with_children=True)
        self._tries += 1
        if not self._is_failed:  # There, processes start cold at once instead of waiting.
            self.folder.write_state("starting", keeper_pid=os.getpid())

    @property
    def _is_failed(self) -> bool:
        """Return whether so many servers have ended that the next one is likely to end too."""
        return self._tries > _MOST_TRIES or self._deaths >= _MOST_DEATHS

    def _arguments(self) -> list[str]:
        return [str(self.folder.root), *self.modules]

    def _check_server(self) -> None:
        assert self._server is not None
        code = self._server.poll()
        if code is not None:
            self._died(_ending(code))
        elif not self._is_stack_same():
            self._replace("the installed packages changed")
        elif not self._is_ready:
            self._check_start()
        elif not self.folder.socket.exists():
            self._replace("its socket was gone")
        elif time.time() - self._status_s > _STATUS_EVERY_S:
            self._status_s = time.time()
            progress = Progress(self._server.pid, with_children=False)
            self._on_status(ask(self.folder, timeout_s=self.limits.answer_s), progress)

    def _on_status(self, status: dict[str, Any] | None, progress: Progress) -> None:
        assert self._server is not None
        if status is None and self._server.poll() is None:
            self._unanswered(progress)
        elif status and status.get("changed"):
            self._replace(f"{status['changed']} changed on disk")
        elif status and not status.get("drivers"):
            self._prepare_once()  # A run that needs it compiles for itself; another is not slowed.

    def _unanswered(self, progress: Progress) -> None:
        """Replace a server that hangs, and leave alone one that only waits for the processor."""
        assert self._server is not None
        if not _listens(self.folder):
            self._replace("its socket was gone")
            return
        waited_s = self.limits.answer_s
        while self._server.poll() is None and not self._stop and self._is_wanted():
            used_s = progress.look()
            if used_s > self.limits.answer_cpu_s:
                why = f"it did not answer in {used_s:.0f} s of processor time"
                break
            if progress.stalled_s > 0.9 * self.limits.answer_s:
                why = f"it did not answer for {waited_s:.0f} s"
                break
            if ask(self.folder, timeout_s=self.limits.answer_s) is not None:
                return
            waited_s += self.limits.answer_s
        else:
            return
        self._kill()
        self._died(why)

    def _kill(self) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def _check_start(self) -> None:
        report = self.folder.read_report()
        assert self._server is not None
        if report.get("pid") == self._server.pid:
            if report.get("problem"):
                self._give_up(report["problem"])
                return
            self._is_ready, self._ready_s = True, time.monotonic()
            self._status_s, self._tries = time.time(), 0
            self.folder.write_state("ready", keeper_pid=os.getpid())
            self.folder.note("ready", server_pid=self._server.pid, took_s=report.get("took_s"))
        elif why := self._hangs():
            self._kill()
            self._died(why)

    def _hangs(self) -> str:
        """Return why a server that starts will not become ready; empty while it makes progress."""
        assert self._progress is not None
        if self._progress.checked_s > time.monotonic() - _MEASURE_S:
            return ""
        used_s = self._progress.look()
        if used_s > self.limits.start_cpu_s:
            return f"it was not ready after {used_s:.0f} s of processor time"
        if self._progress.stalled_s > self.limits.stalled_s:
            stalled_s = self._progress.stalled_s
            return f"it was not ready and had not used the processor for {stalled_s:.0f} s"
        return ""

    def _prepare_once(self) -> None:
        """Compile in idle time what the first ZeRO run would wait a minute for."""
        if self._prepares or "deepspeed" not in self.modules or not PREPARE_CODE.exists():
            return  # A pod's keeper has no more of our package than it needs.
        self._prepares = True
        with self.folder.log.open("ab") as log:
            preparing = subprocess.Popen(
                [sys.executable, "-m", PREPARE],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder.root,
                start_new_session=True,
            )
        give_idle_time(preparing.pid)  # Before it starts a compiler, which inherits it.
        self._old.append(preparing)

    def _give_up(self, why: str) -> None:
        """Kill the server: its forks would harm the job, unlike plain interpreters."""
        self._kill()
        self._off(why)
        self._tries = self._deaths = 0
        self._pause_s = _FIRST_PAUSE_S
        if not self._stop:
            self._start()

    def _off(self, why: str) -> None:
        """Wait until other packages are installed, which may fix the cause."""
        self.folder.write_state("failed", keeper_pid=os.getpid(), reason=why)
        self.folder.note("off", reason=why)
        while not self._stop and self._is_wanted() and self._is_stack_same():
            time.sleep(_POLL_S)

    def _is_stack_same(self) -> bool:
        return fingerprint(list(self._stack)) == self._stack

    def _died(self, why: str) -> None:
        """Start another server after a pause, which is longer each time; soon it is `failed`.

        Then processes start cold at once. The rare next tries are for a cause that passes, such
        as memory that another process needed.
        """
        if self._is_ready and time.monotonic() - self._ready_s > _STEADY_S:
            self._pause_s, self._deaths = _FIRST_PAUSE_S, 0
        self._deaths += 1
        self.folder.note("died", reason=why, log=str(self.folder.log))
        # What took long to fail is not begun again at once.
        pause_s = max(self._pause_s, 0.0 if self._is_ready else time.monotonic() - self._started_s)
        if self._tries >= _MOST_TRIES or self._deaths >= _MOST_DEATHS:
            self._pause_s = pause_s = max(pause_s, _FAILED_PAUSE_S)
            reason = f"{why} ({max(self._tries, self._deaths)} times in succession; next try in"
            reason += f" {pause_s:.0f} s; log: {self.folder.log})"
            self.folder.write_state("failed", keeper_pid=os.getpid(), reason=reason)
        deadline_s = time.monotonic() + pause_s
        while time.monotonic() < deadline_s and not self._stop and self._is_wanted():
            time.sleep(0.1)
            if not self._is_stack_same():  # Other packages, which may fix the cause.
                self._tries, self._deaths, self._pause_s = 0, 0, _FIRST_PAUSE_S
                break
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        if not self._stop:
            self._start()

    def _replace(self, why: str) -> None:
        """Replace the server. The old one stays for its children and ends with the last of them."""
        assert self._server is not None
        self.folder.note("replaced", reason=why)
        with contextlib.suppress(OSError):
            self.folder.socket.unlink()
        self._server.send_signal(signal.SIGTERM)
        self._old.append(self._server)
        self._tries = self._deaths = 0  # It was not its own fault.
        self.folder.write_state("starting", keeper_pid=os.getpid())
        while not self._stop and not self._is_stack_same():
            self._stack = fingerprint(list(self._stack))
            time.sleep(_SETTLED_S)  # An installation changes many things one after another.
        self._start()


def _path() -> list[str]:
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in sys.path[1:] if entry not in added]


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def ask(folder: WarmFolder, *, timeout_s: float) -> dict[str, Any] | None:
    """Return the server's own report; None if it does not answer."""
    request = marshal.dumps({"kind": "status"})
    try:
        with _connected(folder, timeout_s) as channel:
            channel.sendall(len(request).to_bytes(4, "big") + request)
            with channel.makefile("rb") as answer:
                answer.read(len(GREETING))
                size = int.from_bytes(answer.read(4), "big")
                _, status = marshal.loads(answer.read(size))
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return status if isinstance(status, dict) else None


def _listens(folder: WarmFolder) -> bool:
    """Return False if nothing listens on the socket; a hung server still does."""
    try:
        _connected(folder, 0.5).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # Its queue is full.
    return True


def _connected(folder: WarmFolder, timeout_s: float) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(timeout_s)
        channel.connect(str(folder.socket))
    except OSError:
        channel.close()
        raise
    return channel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--watch", type=int, help="end when this process is gone")
    parser.add_argument("--preload", nargs="*", default=[], help="modules to import")
    options = parser.parse_args()
    folder = WarmFolder(options.folder)
    with folder.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # Another keeper runs already.
        Keeper(folder=folder, modules=options.preload, watched_pid=options.watch).run()


if __name__ == "__main__":
    main()
