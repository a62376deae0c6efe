"""The run record, written once before the run starts, and what its driver and workers get of it."""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
import zlib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import RunFolder, cache

Priority: TypeAlias = Literal["low", "normal", "high"]
"""Where a run stands among those that wait on its cluster. A run of low priority also gives its
place back, from its checkpoint, where one of another priority waits for it."""
PRIORITIES: Final[tuple[Priority, ...]] = ("low", "normal", "high")


class GitState(BaseModel):
    model_config = ConfigDict(frozen=True)

    revision: str
    branch: str | None = None
    dirty: bool = False
    """True when the working tree differed; the difference is in `git.diff`."""


class AgentMark(BaseModel):
    """The program that acts for the user, such as a coding agent, and the reason that it gives."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    reason: str
    ticket: str = ""
    """Its reservation in the budget of agents."""


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
    agent: AgentMark | None = None
    """Who submitted it for the user; None for a person, and in records of earlier versions."""
    hardware: dict[str, Any] = {}
    parent: str | None = None
    """The run this one was re-submitted from."""
    reproduces: str | None = None
    """The run whose packages and config this one repeats unchanged, to compare the numbers."""
    sweep: str = ""
    """Id of the sweep that submitted it as the trial with these `overrides`."""
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
    priority: Priority = "normal"
    """What it was submitted with; what it was changed to since, the cluster's queue knows."""

    @property
    def full_name(self) -> str:
        """The name by which its provider looks up the cluster."""
        return self.location or self.cluster


def new_run_id(name: str, now_s: float | None = None) -> str:
    """`<name>-<yymmdd>-<hhmmss>-<4 hex>`, UTC: sorts by time within a name, never reused."""
    moment = time.gmtime(time.time() if now_s is None else now_s)
    return f"{name}-{time.strftime('%y%m%d-%H%M%S', moment)}-{secrets.token_hex(2)}"


# --- The input of a run's driver and workers ---
# Small enough for an environment variable, no secrets.


JOB_CONFIG_ENV_VAR = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's job supervisor sets it in the driver: the job's metadata and runtime environment.

In `driver/compat.py` too, which the driver cannot ask: it must not import Ray before it forks.
"""
PROFILE_MESSAGE = "profile"
"""Message to a training: `{"steps"}`."""
QUEUE_MESSAGE = "queue"
"""Message to the queue of a cluster: `{"run", "priority", "before", "by"}`; `{}` only reads it."""
QUEUE_LINE = "llmops-queue: "
"""What the answer, one line of JSON, begins with in the job's log."""
MESSAGE_METADATA = "llmops_message"
"""Name of the metadata of a job that only hands a value to a run."""
DRIVER_METADATA = "llmops_driver_spec"
"""Name under which a submission puts the encoded spec into the metadata of the Ray job."""


class RunSpec(BaseModel):
    """Travels in the metadata of the Ray job, which Ray puts into the driver's environment.

    Not in the command line, which every user of the host can read; and not in the runtime
    environment, so that two runs of the same code share one and Ray does not create a new one.
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
    user: str = ""
    """Who submitted it: what a node keeps of one user's run is not used for another's."""
    priority: Priority = "normal"
    cluster: str = ""
    """Name of the cluster, as in the record."""
    cache_root: str = ""
    """The client's cache folder; used when the worker can reach it too."""
    most_resources: dict[str, float] | None = None
    """What Ray's autoscaler could bring the cluster to at `submit`, by Ray's names; None: no
    autoscaler."""
    ignored: tuple[str, ...] = ()
    """Files and folders of the workspace that an ignore file kept at home."""
    facts: dict[str, str] = {}
    """What trackers show of the record; empty without `report_to`."""

    @classmethod
    def of(
        cls,
        record: RunRecord,
        attempt: Attempt,
        *,
        run_root: Path,
        most_resources: dict[str, float] | None,
        facts: Mapping[str, str] | None = None,
    ) -> RunSpec:
        """Return the spec of an attempt, on the client that submits it."""
        return cls(
            run_id=record.run_id,
            kind=record.kind,
            attempt=attempt.number,
            config=record.config,
            run_root=str(run_root),
            workspace_root=record.workspace_root,
            submitted_s=attempt.submitted_s,
            user=record.user,
            priority=attempt.priority,
            cluster=record.cluster,
            cache_root=str(cache()),
            most_resources=most_resources,
            ignored=record.ignored,
            facts=dict(facts or {}),
        )

    @property
    def has_packages(self) -> bool:
        """Whether the config names packages that the run needs besides those of the cluster."""
        return bool(self.config.get("packages") or self.config.get("requirements"))

    def encode(self) -> str:
        """URL-safe base64 of the compressed JSON: no character a shell would read."""
        return base64.urlsafe_b64encode(zlib.compress(self.model_dump_json().encode())).decode()

    @classmethod
    def of_this_job(cls, env: MutableMapping[str, str] = os.environ) -> RunSpec:
        """Take the spec of the run whose driver this process is out of its environment.

        Raises StoreError in a process that is no driver.
        """
        try:
            job = json.loads(env[JOB_CONFIG_ENV_VAR])
            encoded = job["metadata"].pop(DRIVER_METADATA)
        except (KeyError, ValueError, TypeError, AttributeError):
            raise StoreError(
                f"The environment of this process names no run ({JOB_CONFIG_ENV_VAR} has no"
                f" {DRIVER_METADATA!r})",
                remedy="Ray starts this command as the driver of a run: submit one with"
                " `llmops submit`",
            ) from None
        env[JOB_CONFIG_ENV_VAR] = json.dumps(job)
        return cls.decode(encoded)

    @classmethod
    def decode(cls, text: str) -> RunSpec:
        return cls.model_validate_json(zlib.decompress(base64.urlsafe_b64decode(text)))


def message_of_job(env: Mapping[str, str]) -> tuple[str, Any]:
    """Return name and value that this job is to hand on. Raises StoreError in another process."""
    try:
        name, value = json.loads(json.loads(env[JOB_CONFIG_ENV_VAR])["metadata"][MESSAGE_METADATA])
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"The environment of this process has no message ({JOB_CONFIG_ENV_VAR}: {error})",
            remedy="Ray starts this command as a job, for `llmops profile` and the like",
        ) from None
    return str(name), value


def shares_run_folder(spec: RunSpec) -> bool:
    """Return whether this node sees the client's folder of the run: the record in it proves it."""
    try:
        record = json.loads(RunFolder(Path(spec.run_root)).record.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("run_id") == spec.run_id


def beginning(model: Mapping[str, Any]) -> str:
    """Return what a training config's `model` begins with: `from RUN step 1,200`, or its id."""
    step = f" step {model['step']:,}" if model.get("step") else ""
    return f"from {model['run']}{step}" if model.get("run") else str(model.get("id") or "")
