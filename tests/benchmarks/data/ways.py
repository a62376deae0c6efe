"""How a user looks at data: two commands, and two requests to a Jupyter server."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.store.paths import home
from tests.browser.lab import Lab

READS_S = 4.0
"""A user reads an answer for so long before the next question."""
CONFIG = "x.train.yaml"


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float | None
    """Of the command and the processes that it started; not known of a server's."""
    said: str


class Ways:
    """`lab` shows the folder in which the config is."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self._folder, self._lab = folder, lab
        self.all = {
            "llmops data": self._data,
            "llmops check": self._check,
            "Data tab": self._tab,
            "Check in Lab": self._lab_check,
        }

    def name(self, source: str) -> None:
        """Write the config of a source."""
        text = f"model: SmolLM2-135M-Instruct\ndata: {source}\n"
        (self._folder / CONFIG).write_text(text)

    def _data(self) -> Cost:
        cost, found = self._command("data", "--json")
        train = found["train"]
        said = f"{train['num_rows']:,} of {train['total_rows']:,} rows ({train['where']})"
        return Cost(cost.wall_s, cost.cpu_s, said)

    def _check(self) -> Cost:
        cost, found = self._command("check", "--json")
        return Cost(cost.wall_s, cost.cpu_s, found["files"][0]["checked"][0])

    def _tab(self) -> Cost:
        wall_s, found = self._asked("configs/data", {})
        facts = {fact["label"]: fact["text"] for fact in found["facts"]}
        return Cost(wall_s, None, facts["rows"])

    def _lab_check(self) -> Cost:
        wall_s, found = self._asked("configs/check", {"closely": True, "with_files": True})
        return Cost(wall_s, None, found["checked"][0])

    def _command(self, *words: str) -> tuple[Cost, Any]:
        llmops = str(Path(sys.executable).with_name("llmops"))
        began_s, used_s = time.monotonic(), _used_s()
        done = subprocess.run(
            [llmops, words[0], CONFIG, *words[1:]],
            cwd=self._folder,
            capture_output=True,
            check=True,
        )
        cost = Cost(time.monotonic() - began_s, _used_s() - used_s, "")
        return cost, json.loads(done.stdout)

    def _asked(self, route: str, more: dict[str, Any]) -> tuple[float, Any]:
        text = (self._folder / CONFIG).read_text()
        request = urllib.request.Request(
            f"{self._lab.url}/llmops/{route}",
            data=json.dumps({"path": CONFIG, "text": text, **more}).encode(),
            headers={"Authorization": f"token {self._lab.token}"},
        )
        time.sleep(READS_S)
        began_s = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.load(answer)
        return time.monotonic() - began_s, found


@contextmanager
def ways_in(folder: Path) -> Iterator[Ways]:
    """Start a JupyterLab on the folder, without a browser, and stop it at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch), work=folder, home=home())
        try:
            lab.wait()
            yield Ways(folder, lab)
        finally:
            lab.stop()


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
