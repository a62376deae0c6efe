"""Beside other work: `python -m tests.soak.busy --minutes 10 --load 20`.

Starts that many processes that never rest, each in a session of its own, and runs `llmops up`,
`submit`, `status`, `score` and `down` one after the other in a home of its own, again and again,
as a user would. Reports how long each took, what failed and with which words, and whether the state
that is shown was true. It ends with 1 if anything failed, and ends all that it has started.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.score.conftest import numbered, write_workspace

_COMMAND_S = 1800.0
"""Nothing may take longer, however busy the machine is."""
_BUSY = "while True: pass"
_SCRIPT = "print('it ran')\n"


@dataclass
class Took:
    """What the commands took, and what was wrong."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def report(self) -> int:
        for name, all_s in self.seconds.items():
            middle, most = statistics.median(all_s), max(all_s)
            print(f"{name:14} {len(all_s):3} times, median {middle:6.1f} s, longest {most:6.1f} s")
        for text in self.wrong:
            print(f"WRONG: {text}")
        print(f"{len(self.wrong)} wrong", flush=True)
        return 1 if self.wrong or not self.seconds else 0


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


class Soak:
    """One user's commands against a local cluster in a home of their own."""

    def __init__(self, root: Path, *, until_s: float) -> None:
        self._until_s, self.took = until_s, Took()
        self._call = Commands(root).call
        self._score = write_workspace(root / "score", numbered(20))
        (root / "script").mkdir()
        (root / "script" / "hello.py").write_text(_SCRIPT)
        self._script = root / "script" / "hello.script.yaml"
        self._script.write_text(json.dumps({"name": "hello", "script": "hello.py"}))

    def run(self) -> None:
        """Repeat until the time is over; the cluster is down afterwards."""
        try:
            while time.monotonic() < self._until_s:
                self._round()
        finally:
            self._llmops("down", "local", "--missing-ok", may_fail=True)

    def _round(self) -> None:
        if not self._llmops("up", "local"):
            self._llmops("down", "local", "--missing-ok")
            return
        self._shows("READY")
        self._run("submit", self._script)
        self._run("score", self._score)
        self._shows("READY")
        self._llmops("down", "local")
        self._shows("STOPPED")

    def _run(self, command: str, config: Path) -> None:
        """Hand in a run, wait for its end, and compare with what its journal has."""
        if not self._llmops(command, str(config), cwd=config.parent):
            return
        self._llmops("wait", "last", name=f"{command}, to end")
        done = self._call("show", "last", "--json")
        try:
            shown = json.loads(done.stdout)
            state = str(shown.get("state"))
        except ValueError:
            state = (done.stdout + done.stderr).strip()[-300:]
        if state != "SUCCEEDED":
            self.took.wrong.append(f"a run of {command} should be SUCCEEDED and is {state}")

    def _shows(self, state: str) -> None:
        """Ask for the cluster's state, which is known here."""
        began_s = time.monotonic()
        done = self._call("status", "local", "--json")
        self.took.seconds.setdefault("status", []).append(time.monotonic() - began_s)
        try:
            info = json.loads(done.stdout)
        except ValueError:
            self.took.wrong.append(f"status said {(done.stdout + done.stderr).strip()[-300:]!r}")
            return
        if str(info["state"]).upper() != state:
            self.took.wrong.append(f"{state}, but status says {info['state']}: {info['message']}")

    def _llmops(
        self, *words: str, name: str = "", cwd: Path | None = None, may_fail: bool = False
    ) -> bool:
        began_s = time.monotonic()
        done = self._call(*words, cwd=cwd)
        took_s = time.monotonic() - began_s
        self.took.seconds.setdefault(name or words[0], []).append(took_s)
        if done.returncode and not may_fail:
            said = " ".join((done.stdout + done.stderr).split())[-400:]
            self.took.wrong.append(f"llmops {words[0]} ended with {done.returncode}: {said}")
        print(f"  {name or words[0]:14} {took_s:6.1f} s, exit {done.returncode}", flush=True)
        return done.returncode == 0


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes running."""
    line = [sys.executable, "-SE", "-c", _BUSY]
    running = [subprocess.Popen(line, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.busy", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="after which no round begins")
    parser.add_argument("--load", type=int, default=20, help="processes that never rest")
    asked = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="llmops-busy-"))
    soak = Soak(root, until_s=time.monotonic() + 60 * asked.minutes)
    try:
        with busy(asked.load):
            soak.run()
    except KeyboardInterrupt:
        print("interrupted: what was done until now", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return soak.took.report()


if __name__ == "__main__":
    sys.exit(main())
