"""The run record: all that is needed to say what ran; written once, before the run starts."""

from __future__ import annotations

import secrets
import time
from typing import Any

from pydantic import BaseModel, ConfigDict


class GitState(BaseModel):
    model_config = ConfigDict(frozen=True)

    revision: str
    branch: str | None = None
    dirty: bool = False
    """True when the working tree differed; the difference lies in `git.diff`."""


class RunRecord(BaseModel):
    """Never changes after it is written; attempts are appended beside it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    name: str
    created_s: float
    cluster: str
    """Name of the cluster it was submitted to."""
    provider: str = "local"
    config: dict[str, Any]
    config_path: str | None = None
    """The file it came from, relative to the workspace where possible."""
    overrides: dict[str, Any] = {}
    workspace_root: str = ""
    code_hash: str = ""
    """Content hash of the workspace's code package."""
    assets_hash: str = ""
    """Content hash of its data package; empty without one."""
    package_hash: str = ""
    """Content hash of `llmops_kernel` itself."""
    files: dict[str, str] = {}
    """Relative path -> content hash (sha256, 16 hex digits) of each workspace file."""
    git: GitState | None = None
    versions: dict[str, str] = {}
    host: str = ""
    user: str = ""
    hardware: dict[str, Any] = {}
    parent: str | None = None
    """The run this one was re-submitted from."""


class Attempt(BaseModel):
    """One try of a run; a line of `attempts.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    submission_id: str
    cluster: str
    dashboard_url: str
    place: str = ""
    """`context/namespace/name` of a cluster on Kubernetes, found there whatever the current
    context is; empty for others."""
    submitted_s: float
    resumed_from: str | None = None

    @property
    def full_name(self) -> str:
        """By which its provider finds the cluster."""
        return self.place or self.cluster


def new_run_id(name: str, now_s: float | None = None) -> str:
    """`<name>-<yymmdd>-<hhmmss>-<4 hex>`, UTC: sorts by time within a name, never reused."""
    moment = time.gmtime(time.time() if now_s is None else now_s)
    return f"{name}-{time.strftime('%y%m%d-%H%M%S', moment)}-{secrets.token_hex(2)}"
