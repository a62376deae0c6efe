"""The input of a run's driver and workers: small enough for a command line, no secrets."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from llmops_kernel.store.paths import RunFolder


class RunSpec(BaseModel):
    """Travels as the single argument of the driver's entrypoint.

    Carried there and not in the runtime environment, so that two runs of the same code
    share one runtime environment and Ray does not create a new one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    kind: str = "train"
    """Name of the run's kind, as in its record."""
    attempt: int
    config: dict[str, Any]
    """The resolved config as plain data."""
    run_root: str
    """The run's folder as the client sees it; used when the worker can reach it too."""
    workspace_root: str = ""
    """The workspace folder on the client: relative data paths are tried there too."""
    submitted_s: float
    """Unix time of `submit`; phases are measured from it."""
    cache_root: str = ""
    """The client's cache folder; used when the worker can reach it too."""

    def encode(self) -> str:
        """URL-safe base64 of the compressed JSON: no character a shell would read."""
        return base64.urlsafe_b64encode(zlib.compress(self.model_dump_json().encode())).decode()

    @classmethod
    def decode(cls, text: str) -> RunSpec:
        return cls.model_validate_json(zlib.decompress(base64.urlsafe_b64decode(text)))


def shares_run_folder(spec: RunSpec) -> bool:
    """Return whether this node sees the client's folder of the run: the record in it proves it."""
    try:
        record = json.loads(RunFolder(Path(spec.run_root)).record.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("run_id") == spec.run_id
