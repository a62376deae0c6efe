"""What a kubelet finds again when it was killed: containers run on without their kubelet.

Each pod's folder has a file that says where the pod is and which process its container is.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

_FILE = "kubelet.json"
_UNKNOWN_EXIT = 137
"""What Kubernetes reports for a container whose end nobody saw."""


@dataclass
class Survivor:
    """One pod, as a kubelet noted it."""

    uid: str
    namespace: str
    cluster: str
    is_head: bool
    ip: str
    ports: dict[str, int]
    pid: int | None = None
    """Of the container; None until it has started."""
    born_s: float = 0.0
    """When that process was created: its number may be another's by now."""
    restarts: int = 0

    @property
    def scope(self) -> tuple[str, str]:
        return self.namespace, self.cluster

    def started(self, pid: int) -> None:
        self.pid = pid
        with suppress(psutil.Error):
            self.born_s = psutil.Process(pid).create_time()

    def write(self, folder: Path) -> None:
        scratch = folder / f"{_FILE}.new"
        scratch.write_text(json.dumps(asdict(self)))
        scratch.replace(folder / _FILE)

    def container(self) -> Container | None:
        return None if self.pid is None else Container(self.pid, self.born_s)


class Container:
    """A process that another kubelet has started, with what is needed of a `Popen`."""

    def __init__(self, pid: int, born_s: float) -> None:
        self.pid, self._born_s = pid, born_s
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not self._lives():
            self.returncode = _UNKNOWN_EXIT
        return self.returncode

    def _lives(self) -> bool:
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            # The machine's clock may have been set meanwhile.
            is_same = abs(process.create_time() - self._born_s) < 5
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        return False


def find(folder: Path) -> dict[str, Survivor]:
    """By uid."""
    texts = [file.read_text() for file in sorted(folder.glob(f"*/{_FILE}"))]
    fields: list[dict[str, Any]] = [json.loads(text) for text in texts]
    return {one["uid"]: Survivor(**one) for one in fields}


__all__ = ["Container", "Survivor", "find"]
