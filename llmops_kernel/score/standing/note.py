"""What an engine writes down about itself where a client can read it: in Ray's log folder.

A client reaches the cluster through Ray's dashboard only, which shows files of that folder.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmops_kernel.store.engine_names import NOTES
from llmops_kernel.store.files import write_whole


class EngineNote:
    """One file, written only when it changes. Without the folder it does nothing."""

    def __init__(self, logs: Path | None, name: str) -> None:
        """`logs`: Ray's log folder of this node. `name`: of the actor."""
        self._path = logs / NOTES / f"{name}.json" if logs and name else None
        self._written: dict[str, Any] = {}

    def write(self, facts: dict[str, Any]) -> None:
        # Nobody can read it on a full disk; the engine works all the same.
        if self._path is not None and facts != self._written:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._path, json.dumps(facts).encode())
                self._written = dict(facts)

    def remove(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
