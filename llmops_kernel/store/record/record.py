"""The run record: everything needed to know what ran; written once, before the run starts."""

from __future__ import annotations

import secrets
import time
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


class GitState(BaseModel):
    model_config = ConfigDict(frozen=True)

    revision: str
    branch: str | None = None
    dirty: bool = False
    """True when the working tree differed; the difference is in `git.diff`."""


class RunRecord(BaseModel):
    """Never changes after it is written; attempts are appended in a separate file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    kind: str = "train"
    """Name of a registered kind of run; records of earlier versions have none."""
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
    left_out: tuple[str, ...] = ()
    """Files and folders that were not uploaded because they usually hold secrets."""
    ignored: tuple[str, ...] = ()
    """Those that the workspace's ignore files kept at home, the ones that the script names first;
    not more than 50."""
    git: GitState | None = None
    versions: dict[str, str] = {}
    host: str = ""
    user: str = ""
    hardware: dict[str, Any] = {}
    parent: str | None = None
    """The run this one was re-submitted from."""
    hidden: bool = False
    """True for runs that lists leave out unless asked for, such as those of `llmops bench`."""


class Attempt(BaseModel):
    """One try of a run; a line of `attempts.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    submission_id: str
    cluster: str
    dashboard_url: str
    location: str = Field("", validation_alias=AliasChoices("location", "place"))
    """`context/namespace/name` of a cluster on Kubernetes, valid whatever the current context
    is; empty for others."""
    submitted_s: float
    run_storage: str | None = None
    """Folder or bucket of the cluster for what runs write, as it was when this was submitted;
    empty: none. None in records of earlier versions."""
    resumed_from: str | None = None

    @property
    def full_name(self) -> str:
        """The name by which its provider looks up the cluster."""
        return self.location or self.cluster


def new_run_id(name: str, now_s: float | None = None) -> str:
    """`<name>-<yymmdd>-<hhmmss>-<4 hex>`, UTC: sorts by time within a name, never reused."""
    moment = time.gmtime(time.time() if now_s is None else now_s)
    return f"{name}-{time.strftime('%y%m%d-%H%M%S', moment)}-{secrets.token_hex(2)}"
