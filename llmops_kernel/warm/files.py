"""The folder that a node's fork server and its launchers share."""

from __future__ import annotations

import json
import marshal
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_LONGEST_ADDRESS = 107  # Of a unix socket, in bytes.

State = Literal["starting", "ready", "failed"]


@dataclass(frozen=True)
class WarmFolder:
    """A folder of mode 0700: whoever can write here can start processes as the cluster's user."""

    root: Path

    def create(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)

    def problem(self) -> str:
        """Return why no server can listen here; empty if one can."""
        size = len(os.fsencode(self.socket))
        if size <= _LONGEST_ADDRESS:
            return ""
        return (
            f"the path of its socket has {size} bytes, and {_LONGEST_ADDRESS} are allowed: "
            f"{self.socket}; choose a shorter temp_dir"
        )

    @property
    def socket(self) -> Path:
        return self.root / "server.sock"

    @property
    def state(self) -> Path:
        """Return the state file, in marshal's format: the launcher reads it without json."""
        return self.root / "state"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def lock(self) -> Path:
        return self.root / "keeper.lock"

    @property
    def command(self) -> Path:
        """Return the keeper's command line and environment, for a launcher that finds no keeper."""
        return self.root / "keeper.cmd"

    @property
    def bin(self) -> Path:
        """Return the folder that is first on a job's PATH: its `python` is the launcher."""
        return self.root / "bin"

    def write_state(self, state: State, *, keeper_pid: int, reason: str = "") -> None:
        value = {
            "state": state,
            "since_s": time.time(),
            "keeper_pid": keeper_pid,
            "reason": reason,
        }
        self._replace(self.state, marshal.dumps(value))

    def read_state(self) -> dict[str, Any] | None:
        try:
            value = marshal.loads(self.state.read_bytes())
        except (OSError, EOFError, ValueError, TypeError):
            return None
        return value if isinstance(value, dict) else None

    def write_report(self, report: dict[str, Any]) -> None:
        self._replace(self.report, json.dumps(report, indent=1).encode())

    def read_report(self) -> dict[str, Any]:
        try:
            report = json.loads(self.report.read_text())
        except (OSError, ValueError):
            return {}
        return report if isinstance(report, dict) else {}

    def write_command(self, line: list[str], env: dict[str, str]) -> None:
        self._replace(self.command, marshal.dumps((line, env)))

    def note(self, event: str, **details: Any) -> None:
        line = {"time_s": round(time.time(), 3), "pid": os.getpid(), "event": event, **details}
        with os.fdopen(
            os.open(self.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w"
        ) as file:
            file.write(json.dumps(line) + "\n")

    def read_events(self) -> list[dict[str, Any]]:
        try:
            lines = self.events.read_text().splitlines()
        except OSError:
            return []
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # The line was cut off by a full disk.
            if isinstance(event, dict):
                events.append(event)
        return events

    def _replace(self, path: Path, content: bytes) -> None:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.replace(path)
