"""A second client of the same user, which reads for the whole time: `... .reader FILE`.

It asks about once a second for the list of clusters and follows every run that it finds, as the
server of a Lab does, and writes what it would show to FILE. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import llmops_kernel as llmops
from llmops_kernel.jobs.follow import Follower
from tests.k8s.standin.process import ROOT
from tests.soak.kubernetes.compare import TERMINAL, Shown
from tests.soak.kubernetes.place import CLUSTER, Place

_EVERY_S = 1.0
_CELLS = 4000
_LAST_LINES_S = 30.0
"""How long a run that has ended is followed."""


class Following:
    """All runs of the home; those that have ended are remembered by their state only."""

    def __init__(self) -> None:
        self._followers: dict[str, Follower] = {}
        self._ended_s: dict[str, float] = {}
        self.shown: dict[str, tuple[str, int | None]] = {}

    def look(self) -> None:
        for run in llmops.runs(limit=None):
            if run.id not in self.shown:
                self._followers[run.id] = run.follower(max_cells=_CELLS)
        for run_id, follower in list(self._followers.items()):
            follower.poll()
            view = follower.view
            state = "PENDING" if view.is_terminal and not follower.is_over else view.state
            self.shown[run_id] = (state, view.last_step)
            ended_s = self._ended_s.setdefault(run_id, time.monotonic())
            if state not in TERMINAL:
                del self._ended_s[run_id]
            elif time.monotonic() - ended_s > _LAST_LINES_S:
                follower.close()
                del self._followers[run_id]


def look(following: Following) -> dict[str, Any]:
    at_s = time.monotonic()
    following.look()
    found: dict[str, Any] = {"state": None, "workers": None, "message": "it is not listed"}
    try:
        for cluster in llmops.clusters():
            if cluster.name == CLUSTER:
                info = cluster.info
                found = {"state": info.state, "workers": info.workers_ready}
                found["message"] = info.message
    except llmops.LLMOpsError as error:
        found["message"] = f"{type(error).__name__}: {error}"
    return {"at_s": at_s, "runs": following.shown, **found}


def main() -> None:
    file = Path(sys.argv[1])
    threading.Thread(target=_end_with_input, daemon=True).start()
    following = Following()
    while True:
        text = json.dumps(look(following))
        scratch = file.with_suffix(".new")
        scratch.write_text(text)
        scratch.replace(file)
        time.sleep(_EVERY_S)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


class Reader:
    """Starts and asks it."""

    def __init__(self, place: Place) -> None:
        self._file = place.folder / "shown.json"
        self.log = place.folder / "reader.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.kubernetes.reader", str(self._file)],
                cwd=place.folder, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "LLMOPS_HOME": str(place.home), "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def shown(self, *, since_s: float, patience_s: float = 30.0) -> Shown | None:
        """What it showed at its first look after `since_s` (monotonic); None if it did not."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s and self._process.poll() is None:
            if self._file.exists():
                found = json.loads(self._file.read_text())
                if found.pop("at_s") >= since_s:
                    runs = {name: tuple(one) for name, one in found.pop("runs").items()}
                    return Shown("reader", runs=runs, **found)
            time.sleep(0.1)
        return None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


if __name__ == "__main__":
    main()
